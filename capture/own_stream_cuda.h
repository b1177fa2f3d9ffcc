// A CUDA stream owned by one stage: PyTorch's stream pool wraps round and aliases.
#pragma once

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

namespace millrace::capture {

class OwnStream {
 public:
  explicit OwnStream(c10::Device device) {
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~OwnStream() { C10_CUDA_CHECK_WARN(cudaStreamDestroy(stream_)); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace millrace::capture
