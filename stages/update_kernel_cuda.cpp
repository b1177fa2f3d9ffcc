#include "stages/update_kernel_cuda.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include "stages/update_kernel.h"

namespace millrace::stages {

bool update_kernel(const UpdateNumbers& n, const UpdateBuffers& buffers, const at::Tensor& rate,
                   const at::Tensor& finite) {
  launch_update(n,
                {.count = buffers.from.numel(),
                 .from = buffers.from.const_data_ptr<float>(),
                 .to = buffers.to.mutable_data_ptr<float>(),
                 .gradient = buffers.gradient.const_data_ptr<float>(),
                 .state = state_of(n, buffers.state),
                 .rate = rate.const_data_ptr<double>(),
                 .finite = finite.const_data_ptr<bool>()},
                c10::cuda::getCurrentCUDAStream(buffers.from.device().index()));
  C10_CUDA_CHECK(cudaGetLastError());
  return true;
}

}  // namespace millrace::stages
