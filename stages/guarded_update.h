// An update that a recording can hold: nothing in it asks the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "stages/correction.h"
#include "stages/optimizer.h"
#include "stages/update_numbers.h"

namespace millrace::stages {

/// What an update reads and writes: flat buffers of one layout, but for single numbers of state and
/// memory.
struct UpdateBuffers {
  at::Tensor from;                ///< the weights
  at::Tensor to;                  ///< where the new ones go; may be `from`
  at::Tensor gradient;            ///< a sum of gradients; overwritten
  std::vector<at::Tensor> state;  ///< Optimizer::buffers()
  Memory memory;                  ///< the correction's
};

/// What check_and_update() does, if `finite` (0-dim, bool), by LibTorch's operators. Reentrant;
/// no-grad mode.
void guarded_update(const UpdateNumbers& n, UpdateBuffers buffers, const at::Tensor& rate,
                    const at::Tensor& finite);

/// The correction, and the optimizer's step, with the mean of n.count gradients, if `finite`
/// (0-dim, bool; undefined: if the gradient is, and if not, `skipped`, 0-dim float, counts it);
/// otherwise `to` gets `from`, and state and memory stay, bit for bit. `rate` (0-dim, double)
/// multiplies n.lr. Returns `finite`. Everything lies on the buffers' device, so that it may be
/// recorded. It rounds differently from Optimizer::step(), since the rate is a tensor here.
/// One call of the operator millrace::check_and_update, so that whoever records calls finds the
/// whole update in one place.
at::Tensor check_and_update(const UpdateNumbers& n, UpdateBuffers buffers, const at::Tensor& rate,
                            at::Tensor& skipped, const at::Tensor& finite = {});

/// The operator takes numbers as their bytes; this takes them out again.
UpdateNumbers numbers_in(const std::string& bytes);
/// Where state and memory lie, for kernels of ours.
UpdateState state_of(const UpdateNumbers& n, const std::vector<at::Tensor>& state);
CorrectionMemory memory_of(CorrectionRule rule, const Memory& memory);

}  // namespace millrace::stages
