// An update that a recording can hold: nothing in it asks the host.
#pragma once

#include <ATen/core/Tensor.h>  // at::Tensor

#include <string>  // names
#include <string_view>
#include <utility>  // state
#include <vector>   // state

#include "stages/correction.h"
#include "stages/optimizer.h"
#include "stages/update_numbers.h"

namespace millrace::stages {

/// What an update reads and writes: flat buffers of one layout, and Optimizer::state().
struct UpdateBuffers {
  at::Tensor from;      ///< the weights
  at::Tensor to;        ///< where the new ones go; may be `from`
  at::Tensor gradient;  ///< the sum of `count`; overwritten
  NamedTensors state;
  CorrectionNumbers correction;
  Memory memory;  ///< the correction's
};

/// What check_and_update() does, if `finite` (0-dim, bool), by LibTorch's operators: but the
/// optimizer's rule is one kernel of our own on a CUDA device where the build has it
/// (update_kernel_cuda.cu). Reentrant; no-grad mode.
void guarded_update(const OptimizerSpec& spec, UpdateBuffers buffers, int count,
                    const at::Tensor& rate, const at::Tensor& finite);

/// The correction, and Optimizer::step() of `spec`, with the mean of `count` gradients, if `finite`
/// (0-dim, bool; undefined: if the gradient is, and if not, `skipped`, 0-dim float, counts it);
/// otherwise `to` gets `from`, and state and memory stay, bit for bit. `rate` (0-dim, double)
/// multiplies spec.lr. Returns `finite`. Everything on the buffers' device, so that it may be
/// recorded. Its formulas are Optimizer's; they round differently, since the rate is a tensor here.
/// One call of the operator millrace::check_and_update, so that whoever records calls finds the
/// whole update in one place.
at::Tensor check_and_update(const OptimizerSpec& spec, UpdateBuffers buffers, int count,
                            const at::Tensor& rate, at::Tensor& skipped,
                            const at::Tensor& finite = {});
/// What kernels of ours are told of an update of `spec` with the mean of `count` gradients, and
/// where its state lies.
UpdateNumbers update_numbers(const OptimizerSpec& spec, int count,
                             const CorrectionNumbers& correction = {});
UpdateState state_of(const NamedTensors& state);
CorrectionMemory memory_of(CorrectionRule rule, const Memory& memory);

/// Its arguments as the operator has them, and back.
std::vector<double> numbers_of(const OptimizerSpec& spec);
OptimizerSpec spec_of(std::string_view kind, const std::vector<double>& numbers);
CorrectionNumbers correction_of(const std::vector<double>& numbers);

}  // namespace millrace::stages
