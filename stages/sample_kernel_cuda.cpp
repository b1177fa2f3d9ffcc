// From tensors to the kernel.
#include "stages/sample_kernel_cuda.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include "stages/sample_kernel.h"

namespace millrace::stages {

bool sample_kernel(const at::Tensor& bytes, at::Tensor& sample) {
  launch_sample(bytes.const_data_ptr<std::uint8_t>(), bytes.size(0) * bytes.size(1),
                int(bytes.size(2)), sample.mutable_data_ptr<float>(),
                c10::cuda::getCurrentCUDAStream(bytes.device().index()));
  C10_CUDA_CHECK(cudaGetLastError());
  return true;
}

}  // namespace millrace::stages
