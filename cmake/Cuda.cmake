# nvcc and CUDA's runtime: the machine's own toolkit, or else the one that scripts/install-deps.sh --device cuda unpacked.
set(CMAKE_CUDA_ARCHITECTURES "75;80;90;100" CACHE STRING "Compute capabilities that kernels are compiled for")
find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda ${ESPALIER_DEPS}/libtorch-cuda/nvidia/cu13 PATH_SUFFIXES bin)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "No nvcc here: run scripts/install-deps.sh --device cuda, or put that of a CUDA 13 toolkit on the PATH")
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc can.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
find_package(CUDAToolkit 13 REQUIRED)
