// From tensors to the kernel.
#include "stages/update_kernel_cuda.h"

#include <ATen/core/Tensor.h>     // at::Tensor
#include <c10/cuda/CUDAStream.h>  // the current stream

#include <cmath>  // spike compensation's factors

#include "stages/update_kernel.h"

namespace millrace::stages {
namespace {

UpdateNumbers numbers(const OptimizerSpec& spec, int count) {
  const OptimizerKind& kind = optimizer_kind(spec.kind);
  UpdateNumbers n{.rule = kind.kernel,
                  .share = 1.0 / count,
                  .lr = spec.lr,
                  .momentum = spec.momentum,
                  .weight_decay = spec.weight_decay,
                  .beta1 = spec.beta1,
                  .beta2 = spec.beta2,
                  .alpha = spec.alpha,
                  .eps = spec.eps,
                  .decoupled = kind.decoupled};
  if (spec.spike_delay > 0) {
    n.spike_momentum = std::pow(spec.momentum, double(spec.spike_delay));
    n.spike_gradient = (1 - n.spike_momentum) / (1 - spec.momentum);
  }
  return n;
}

}  // namespace

bool update_kernel(const OptimizerSpec& spec, const UpdateBuffers& buffers, int count,
                   const at::Tensor& rate, const at::Tensor& finite) {
  UpdatePointers p{.count = buffers.from.numel(),
                   .from = buffers.from.const_data_ptr<float>(),
                   .to = buffers.to.mutable_data_ptr<float>(),
                   .gradient = buffers.gradient.const_data_ptr<float>(),
                   .rate = rate.const_data_ptr<double>(),
                   .finite = finite.const_data_ptr<bool>()};
  for (const auto& [name, buffer] : buffers.state) {
    float* data = buffer.mutable_data_ptr<float>();
    if (name == "momentum" || name == "mean") p.first = data;
    if (name == "square") p.second = data;
    if (name == "steps") p.steps = data;
  }
  launch_update(numbers(spec, count), p,
                c10::cuda::getCurrentCUDAStream(buffers.from.device().index()));
  C10_CUDA_CHECK(cudaGetLastError());
  return true;
}

}  // namespace millrace::stages
