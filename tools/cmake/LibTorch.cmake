# Finds LibTorch and the CUDA headers it needs.
if(NOT MILLRACE_TORCH)
  file(GLOB MILLRACE_TORCH_FOUND ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  if(NOT MILLRACE_TORCH_FOUND)
    message(FATAL_ERROR "No LibTorch: run tools/setup, or name one with -DMILLRACE_TORCH=DIR")
  endif()
  set(MILLRACE_TORCH ${MILLRACE_TORCH_FOUND} CACHE PATH "" FORCE)
endif()
if(NOT EXISTS ${MILLRACE_TORCH}/include/ATen/ATen.h)
  message(FATAL_ERROR "MILLRACE_TORCH=${MILLRACE_TORCH} holds no include/ATen/ATen.h")
endif()

# CUDA headers: from the wheel, else from a toolkit. crt/ is in a separate wheel, so look for a file there.
find_path(MILLRACE_CUDA_INCLUDE crt/host_defines.h
  HINTS ${MILLRACE_TORCH}/../nvidia/cu13/include /usr/local/cuda/include)
find_path(MILLRACE_NCCL_INCLUDE nccl.h HINTS ${MILLRACE_TORCH}/../nvidia/nccl/include)
include(${CMAKE_CURRENT_LIST_DIR}/LibTorchTarget.cmake)

# What the module for GPUs links: LibTorch's CUDA part, and the CUDA runtime of its wheel, else of a toolkit.
# MILLRACE_CUDA: the version, "13.0"; empty: no such module.
if(NOT DEFINED MILLRACE_TORCH_CUDA)  # set it OFF for a build without
  if(EXISTS ${MILLRACE_TORCH}/lib/libtorch_cuda.so)
    set(MILLRACE_TORCH_CUDA ON)
  else()
    set(MILLRACE_TORCH_CUDA OFF)
  endif()
endif()
set(MILLRACE_CUDA "")
if(MILLRACE_TORCH_CUDA AND MILLRACE_CUDA_INCLUDE)
  file(GLOB cudart_found ${MILLRACE_CUDA_INCLUDE}/../lib/libcudart.so.13
                         ${MILLRACE_TORCH}/../nvidia/cu13/lib/libcudart.so.13)
  if(cudart_found AND NOT MILLRACE_CUDART)
    list(GET cudart_found 0 MILLRACE_CUDART)
  endif()
  find_library(MILLRACE_CUDART cudart HINTS /usr/local/cuda/lib64)
  if(NOT MILLRACE_CUDART)
    message(FATAL_ERROR "CUDA headers in ${MILLRACE_CUDA_INCLUDE}, but no libcudart: name one with -DMILLRACE_CUDART=FILE")
  endif()
  add_library(libcudart INTERFACE IMPORTED GLOBAL)
  target_link_libraries(libcudart INTERFACE ${MILLRACE_CUDART})
  add_library(libtorch_cuda INTERFACE IMPORTED GLOBAL)
  target_link_options(libtorch_cuda INTERFACE "SHELL:-Wl,--no-as-needed -ltorch_cuda -lc10_cuda -Wl,--as-needed")
  file(STRINGS ${MILLRACE_CUDA_INCLUDE}/cuda.h version REGEX "define CUDA_VERSION ")
  string(REGEX REPLACE ".* ([0-9]+)0([0-9])0.*" "\\1.\\2" MILLRACE_CUDA "${version}")
endif()
message(STATUS "LibTorch: ${MILLRACE_TORCH} (CUDA ${MILLRACE_CUDA}, headers ${MILLRACE_CUDA_INCLUDE})")
