# Our targets: warnings as errors, include root at the top, the shared precompiled header unless OWN_HEADERS is given (for
# LibTorch, and for what precompiles headers of its own).
add_library(espalier_options INTERFACE)
target_include_directories(espalier_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(espalier_options INTERFACE -Wall -Wextra -Werror -Wno-missing-field-initializers -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(espalier_options INTERFACE -Wthread-safety)
else()
  # GCC 12 reports false positives of these through std::string and absl containers when it inlines.
  target_compile_options(espalier_options INTERFACE -Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds)
endif()
if(ESPALIER_SANITIZE)
  target_compile_options(espalier_options INTERFACE -fsanitize=${ESPALIER_SANITIZE} -fno-sanitize-recover=undefined)
  string(REPLACE "fuzzer-no-link" "" _link_sanitize "${ESPALIER_SANITIZE}")
  string(REGEX REPLACE ",$" "" _link_sanitize "${_link_sanitize}")
  target_link_options(espalier_options INTERFACE -fsanitize=${_link_sanitize})
endif()
target_compile_definitions(espalier_options INTERFACE ESPALIER_VERSION="${PROJECT_VERSION}")
# gRPC asks for -pthread; a precompiled header wants it everywhere.
target_compile_options(espalier_options INTERFACE -pthread)
target_link_libraries(espalier_options INTERFACE Threads::Threads)

# espalier_library(NAME [OWN_HEADERS] SOURCES ... [DEPS ...]): a static library.
function(espalier_library name)
  cmake_parse_arguments(ARG "OWN_HEADERS" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC espalier_options ${ARG_DEPS})
  if(NOT ARG_OWN_HEADERS)
    espalier_precompile(${name} espalier_headers)
  endif()
endfunction()

# espalier_executable(NAME [OWN_HEADERS] SOURCES ... [DEPS ...]): an installed program.
function(espalier_executable name)
  cmake_parse_arguments(ARG "OWN_HEADERS" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE espalier_options ${ARG_DEPS})
  if(NOT ARG_OWN_HEADERS)
    espalier_precompile(${name} espalier_headers)
  endif()
endfunction()

# espalier_test(NAME SOURCES ... [DEPS ...] [LABELS ...]): one GoogleTest binary, one ctest entry.
function(espalier_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE espalier_options ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  # What is tested is optimised; the tests' own code would only take longer to compile.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  espalier_precompile(${name} espalier_test_headers)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" ENVIRONMENT "${ESPALIER_TEST_ENVIRONMENT}")
endfunction()
