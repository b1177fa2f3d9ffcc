#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "stages/correction.h"
#include "stages/optimizer.h"
#include "stages/update_numbers.h"

namespace millrace::stages {

/// Flat buffers of one layout, except single numbers of state and memory.
struct UpdateBuffers {
  at::Tensor from;
  at::Tensor to;                  ///< the new weights; may be `from`
  at::Tensor gradient;            ///< a sum of gradients; overwritten
  std::vector<at::Tensor> state;  ///< Optimizer::buffers()
  Memory memory;                  ///< the correction's
};

/// Applies the correction and the optimizer's step with the mean of n.count gradients. On a GPU it
/// does not synchronize with the host, so it can be recorded. If `finite` (0-dim, bool) is false,
/// `to` gets `from`, and state and memory stay, bit for bit. Undefined: whether the gradient is
/// finite; if not, `skipped` (0-dim float) is incremented. `rate` (0-dim, double) multiplies n.lr.
/// Returns `finite`. All on the buffers' device. Reentrant; no-grad mode. One operator,
/// millrace::check_and_update, so that recorders see the update as a whole.
at::Tensor check_and_update(const UpdateNumbers& n, UpdateBuffers buffers, const at::Tensor& rate,
                            at::Tensor& skipped, const at::Tensor& finite = {});

struct NumbersArgument final : torch::CustomClassHolder {
  explicit NumbersArgument(const UpdateNumbers& n) : numbers(n) {}
  const UpdateNumbers numbers;
};
UpdateState state_of(const UpdateNumbers& n, const std::vector<at::Tensor>& state);
CorrectionMemory memory_of(CorrectionRule rule, const Memory& memory);

}  // namespace millrace::stages
