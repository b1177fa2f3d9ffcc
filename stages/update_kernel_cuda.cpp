// From tensors to the kernel.
#include "stages/update_kernel_cuda.h"

#include <ATen/core/Tensor.h>     // at::Tensor
#include <c10/cuda/CUDAStream.h>  // the current stream

#include "stages/update_kernel.h"

namespace millrace::stages {
bool update_kernel(const OptimizerSpec& spec, const UpdateBuffers& buffers, int count,
                   const at::Tensor& rate, const at::Tensor& finite) {
  UpdatePointers p{.count = buffers.from.numel(),
                   .from = buffers.from.const_data_ptr<float>(),
                   .to = buffers.to.mutable_data_ptr<float>(),
                   .gradient = buffers.gradient.const_data_ptr<float>(),
                   .rate = rate.const_data_ptr<double>(),
                   .finite = finite.const_data_ptr<bool>()};
  const UpdateState state = state_of(buffers.state);
  p.first = state.first;
  p.second = state.second;
  p.steps = state.steps;
  launch_update(update_numbers(spec, count), p,
                c10::cuda::getCurrentCUDAStream(buffers.from.device().index()));
  C10_CUDA_CHECK(cudaGetLastError());
  return true;
}

}  // namespace millrace::stages
