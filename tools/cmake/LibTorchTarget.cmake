# LibTorch's part for cores as the imported target `libtorch`, from the folder MILLRACE_TORCH. Used by the build and,
# installed, by find_package(millrace). LibTorch's own CMake package requires a CUDA toolkit that the libraries don't.
if(NOT TARGET libtorch)
  add_library(libtorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(libtorch SYSTEM INTERFACE
    ${MILLRACE_TORCH}/include ${MILLRACE_TORCH}/include/torch/csrc/api/include)
  target_link_directories(libtorch INTERFACE ${MILLRACE_TORCH}/lib)
  # --no-as-needed: it registers its kernels when loaded.
  target_link_options(libtorch INTERFACE -Wl,--no-as-needed -ltorch_cpu -lc10 -Wl,--as-needed
    -Wl,-rpath,${MILLRACE_TORCH}/lib)
  target_link_libraries(libtorch INTERFACE Threads::Threads)
endif()
