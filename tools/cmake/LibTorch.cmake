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
if(MILLRACE_TORCH_CUDA AND MILLRACE_CUDA_INCLUDE AND NOT TARGET libcudart)
  message(FATAL_ERROR "CUDA headers in ${MILLRACE_CUDA_INCLUDE}, but no libcudart: name one with -DMILLRACE_CUDART=FILE")
endif()
message(STATUS "LibTorch: ${MILLRACE_TORCH} (CUDA ${MILLRACE_TORCH_CUDA}, headers ${MILLRACE_CUDA_INCLUDE})")
