// An update that a recording can hold: nothing in it asks the host.
#pragma once

#include <ATen/core/Tensor.h>  // at::Tensor

#include <string>   // names
#include <utility>  // state
#include <vector>   // state

#include "stages/optimizer_spec.h"

namespace millrace::stages {

/// What an update reads and writes: flat buffers of one layout, and Optimizer::state().
struct UpdateBuffers {
  at::Tensor from;      ///< the weights
  at::Tensor to;        ///< where the new ones go; may be `from`
  at::Tensor gradient;  ///< the sum of `count`; overwritten
  std::vector<std::pair<std::string, at::Tensor>> state;
};

/// Optimizer::step() of `spec` with the mean of `count` gradients, if `finite` (0-dim, bool);
/// otherwise `to` gets `from` and the state stays, bit for bit. `rate` (0-dim, double) multiplies
/// spec.lr. Everything on the buffers' device, so that it may be recorded. Its formulas are
/// Optimizer's; they round differently, since the rate is a tensor here. On a CUDA device one
/// kernel of our own where the build has it (update_kernel_cuda.cu), else LibTorch's operators.
/// Reentrant; no-grad mode.
void guarded_update(const OptimizerSpec& spec, UpdateBuffers buffers, int count,
                    const at::Tensor& rate, const at::Tensor& finite);

}  // namespace millrace::stages
