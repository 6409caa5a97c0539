# Two precompiled headers, one for the product's libraries and programs and one for the tests, which are compiled with
# other options: the generated messages and gRPC are two thirds of what a small file costs to compile.
option(ESPALIER_PRECOMPILE "Precompile the headers that most files share" ON)

# espalier_precompiled_header(NAME HEADERS...): a precompiled header for the targets that name it.
function(espalier_precompiled_header name)
  if(NOT ESPALIER_PRECOMPILE)
    return()
  endif()
  set(_source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  if(NOT EXISTS ${_source})
    file(WRITE ${_source} "")
  endif()
  add_library(${name} OBJECT ${_source})
  target_link_libraries(${name} PRIVATE espalier_options espalier_grpc absl::flat_hash_map absl::flat_hash_set)
  target_precompile_headers(${name} PRIVATE ${ARGN})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${name} PRIVATE -fpch-preprocess) # ccache looks into the header's name
  endif()
endfunction()

# espalier_precompile(TARGET NAME): the target's files start from that header.
function(espalier_precompile target name)
  if(TARGET ${name})
    target_precompile_headers(${target} REUSE_FROM ${name})
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      target_compile_options(${target} PRIVATE -fpch-preprocess)
    endif()
  endif()
endfunction()
