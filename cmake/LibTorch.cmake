# LibTorch from the unpacked wheel. The wheel's own TorchConfig.cmake wants a CUDA toolkit even for the CPU libraries, so
# the two imported targets are written here. Its headers come after the system's: it carries a protobuf of its own.
set(_torch ${ESPALIER_DEPS}/libtorch/torch)
if(NOT EXISTS ${_torch}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "LibTorch is not in ${_torch}: run scripts/install-deps.sh, or configure with -DESPALIER_WITH_LIBTORCH=OFF")
endif()

add_library(libtorch_c10 SHARED IMPORTED)
set_target_properties(libtorch_c10 PROPERTIES IMPORTED_LOCATION ${_torch}/lib/libc10.so)
add_library(libtorch_cpu SHARED IMPORTED)
set_target_properties(libtorch_cpu PROPERTIES IMPORTED_LOCATION ${_torch}/lib/libtorch_cpu.so)

add_library(espalier_libtorch INTERFACE)
target_link_libraries(espalier_libtorch INTERFACE libtorch_cpu libtorch_c10)
target_compile_options(espalier_libtorch INTERFACE "SHELL:-idirafter ${_torch}/include/torch/csrc/api/include"
                                                   "SHELL:-idirafter ${_torch}/include")
target_compile_definitions(espalier_libtorch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED USE_RPC _GLIBCXX_USE_CXX11_ABI=1)
