# The target `libtorch`: LibTorch as plain imported libraries. Its own CMake package wants a CUDA
# toolkit even to link programs that run without one; the libraries themselves do not.
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

add_library(libtorch INTERFACE)
target_include_directories(libtorch SYSTEM INTERFACE
  ${MILLRACE_TORCH}/include ${MILLRACE_TORCH}/include/torch/csrc/api/include)
target_link_directories(libtorch INTERFACE ${MILLRACE_TORCH}/lib)
# --no-as-needed: nothing refers to torch_cuda by symbol; it registers its kernels when loaded.
set(torch_libraries torch torch_cpu c10)
if(EXISTS ${MILLRACE_TORCH}/lib/libtorch_cuda.so)
  list(APPEND torch_libraries torch_cuda c10_cuda)
  set(MILLRACE_TORCH_CUDA ON)
else()
  set(MILLRACE_TORCH_CUDA OFF)
endif()
list(TRANSFORM torch_libraries PREPEND -l OUTPUT_VARIABLE torch_links)
target_link_options(libtorch INTERFACE -Wl,--no-as-needed ${torch_links} -Wl,--as-needed
  -Wl,-rpath,${MILLRACE_TORCH}/lib)
target_link_libraries(libtorch INTERFACE Threads::Threads)

# CUDA headers: the wheel's own, else a toolkit's. crt/ is a wheel of its own, so ask for what lies there.
find_path(MILLRACE_CUDA_INCLUDE crt/host_defines.h
  HINTS ${MILLRACE_TORCH}/../nvidia/cu13/include /usr/local/cuda/include)
message(STATUS "LibTorch: ${MILLRACE_TORCH} (CUDA ${MILLRACE_TORCH_CUDA}, headers ${MILLRACE_CUDA_INCLUDE})")
