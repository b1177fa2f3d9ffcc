#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace millrace::capture {

/// Throws std::runtime_error, "cudaGraphInstantiate: invalid argument", unless `result` is success.
/// \param call its text; what follows the function's name is left out.
inline void check_cuda(cudaError_t result, std::string_view call) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // otherwise LibTorch's next launch check reports it, too
  throw std::runtime_error(std::string(call.substr(0, call.find('('))) + ": " +
                           cudaGetErrorString(result));
}
#define MILLRACE_CHECK_CUDA(call) ::millrace::capture::check_cuda(call, #call)

}  // namespace millrace::capture
