#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "stages/correction.h"
#include "stages/training_spec.h"
#include "stages/update_numbers.h"

namespace millrace::stages {

/// Throws std::invalid_argument for a name that is not in optimizer_formulas-inl.h.
const OptimizerInfo& optimizer_info(const std::string& name);
/// An argument of the operator millrace::check_and_update.
struct NumbersArgument final : torch::CustomClassHolder {
  explicit NumbersArgument(const UpdateNumbers& n) : numbers(n) {}
  const UpdateNumbers numbers;
};

/// A stage's update rule and its state, on flat buffers. Thread-bound.
class Optimizer {
 public:
  /// `weights`: for size and device of the state. `places`: Parameters::places(), only needed for
  /// OptimizerSpec::orthogonal. Throws std::invalid_argument for an unknown kind.
  Optimizer(const OptimizerSpec& spec, const at::Tensor& weights,
            std::vector<std::int64_t> places = {});
  /// For OptimizerSpec::orthogonal, before each update: orthogonal gradients, Han et al., arXiv
  /// 2504.01961. Removes from each tensor's part g of `gradient`, a sum of `count`, its projection
  /// on the same part c of the gradients' mean,
  ///   g <- g - (g.c / c.c) c,
  /// then sets c <- decay c + (1 - decay) g / count, with the original g. The paper defines g and c
  /// for the whole network, and has no published code. Here each tensor is projected by itself, as
  /// optimizers treat parameters, so that the cut does not change the rule. A non-finite gradient
  /// leaves the mean unchanged; one whose products overflow, or that meets a mean of 0, stays
  /// whole. One call of the operator millrace::orthogonalize, which does not synchronize with the
  /// host, so it can be recorded. No-grad mode.
  void orthogonalize(at::Tensor& gradient, int count);
  /// orthogonalize(), then the correction's and the optimizer's step with the mean of `count`
  /// gradients, whose sum `gradient` is overwritten. `from`, `to`: the weights before and after;
  /// may be one. If `finite` (0-dim, bool) is false, `to` gets `from`, and state and memory stay,
  /// bit for bit. Undefined: whether the gradient is finite; if not, `skipped` (0-dim float) is
  /// incremented. `rate` (0-dim, double) multiplies lr. `correction` may be null. Returns `finite`.
  /// All on one device, of one layout; on a GPU it does not synchronize with the host, so it can be
  /// recorded. No-grad mode. One call of the operator millrace::check_and_update, so that recorders
  /// see the update as a whole.
  at::Tensor update(const at::Tensor& from, const at::Tensor& to, at::Tensor& gradient, int count,
                    const at::Tensor& rate, at::Tensor& skipped, const at::Tensor& finite = {},
                    const Correction* correction = nullptr);
  /// State to resume from. Aliases: copy to save, copy_ into to restore.
  const NamedTensors& state() const { return state_; }
  /// The part of state() that the optimizer's formula reads and writes.
  std::vector<at::Tensor> buffers() const;
  std::int64_t bytes() const;  ///< of state()

 private:
  NamedTensors state_;  ///< the formula's, then mean_
  std::vector<std::int64_t> places_;
  OptimizerSpec spec_;
  at::Tensor mean_;  ///< of gradients; undefined if not projected
};

/// Factor on spec.lr in the update after `updates` others: the closed forms of
/// torch.optim.lr_scheduler's StepLR and CosineAnnealingLR, after LinearLR for spec.warmup updates
/// (joined as in SequentialLR: the schedule begins when the warm-up ends).
double scheduled_rate(const OptimizerSpec& spec, std::int64_t updates);
bool has_constant_rate(const OptimizerSpec& spec);

}  // namespace millrace::stages
