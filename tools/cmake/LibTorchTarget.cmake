# LibTorch as the imported targets `libtorch` and `libcudart`, from the folder MILLRACE_TORCH. Used by the build and,
# installed, by find_package(millrace). LibTorch's own CMake package requires a CUDA toolkit that the libraries don't.
if(NOT DEFINED MILLRACE_TORCH_CUDA)  # set it OFF for programs that need only LibTorch's CPU part
  if(EXISTS ${MILLRACE_TORCH}/lib/libtorch_cuda.so)
    set(MILLRACE_TORCH_CUDA ON)
  else()
    set(MILLRACE_TORCH_CUDA OFF)
  endif()
endif()

if(NOT TARGET libtorch)
  add_library(libtorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(libtorch SYSTEM INTERFACE
    ${MILLRACE_TORCH}/include ${MILLRACE_TORCH}/include/torch/csrc/api/include)
  target_link_directories(libtorch INTERFACE ${MILLRACE_TORCH}/lib)
  # --no-as-needed: nothing refers to torch_cuda by symbol; it registers its kernels when loaded.
  set(torch_links -ltorch_cpu -lc10)
  if(MILLRACE_TORCH_CUDA)
    list(APPEND torch_links -ltorch -ltorch_cuda -lc10_cuda)
  endif()
  target_link_options(libtorch INTERFACE -Wl,--no-as-needed ${torch_links} -Wl,--as-needed
    -Wl,-rpath,${MILLRACE_TORCH}/lib)
  target_link_libraries(libtorch INTERFACE Threads::Threads)
endif()

# The CUDA runtime from LibTorch's wheel, else from a toolkit.
if(MILLRACE_TORCH_CUDA AND NOT TARGET libcudart)
  file(GLOB cudart_found ${MILLRACE_CUDA_INCLUDE}/../lib/libcudart.so.13
                         ${MILLRACE_TORCH}/../nvidia/cu13/lib/libcudart.so.13)
  if(cudart_found AND NOT MILLRACE_CUDART)
    list(GET cudart_found 0 MILLRACE_CUDART)
  endif()
  find_library(MILLRACE_CUDART cudart HINTS /usr/local/cuda/lib64)
  if(MILLRACE_CUDART)
    add_library(libcudart INTERFACE IMPORTED GLOBAL)
    target_link_libraries(libcudart INTERFACE ${MILLRACE_CUDART})
  endif()
endif()
