// Update rules, on the flat buffer of a stage's weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "stages/training_spec.h"
#include "stages/update_numbers.h"

namespace millrace::stages {

/// Buffers laid out as the weights, or single numbers ([1]), by name.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Throws std::invalid_argument for a name that optimizer_formulas-inl.h does not have.
const OptimizerInfo& optimizer_info(const std::string& name);
/// What an update of `spec` with the mean of `count` gradients is told. Throws as optimizer_info().
UpdateNumbers update_numbers(const OptimizerSpec& spec, int count);

/// Thread-bound. Holds the state (momenta, second moments) of one stage.
class Optimizer {
 public:
  /// `weights` gives size and device of the state; `places`: Parameters::places(), of which
  /// OptimizerSpec::orthogonal alone makes use. Throws std::invalid_argument for an unknown kind.
  Optimizer(const OptimizerSpec& spec, const at::Tensor& weights,
            std::vector<std::int64_t> places = {});
  /// Before each update: projects `gradient`, a sum of `count`, if OptimizerSpec::orthogonal says
  /// so: orthogonalize(). May be recorded. Must run in no-grad mode.
  void orthogonalize(at::Tensor& gradient, int count);
  /// Updates `weights` in place; both are flat buffers of one layout. `gradient` may be
  /// overwritten. Must run in no-grad mode.
  void step(at::Tensor& weights, at::Tensor& gradient);
  /// Multiplies the rate from now on, until set anew.
  void set_rate(double factor) { rate_ = factor; }
  /// What must be kept to go on later. It aliases: copy to save, copy_ into to restore.
  const NamedTensors& state() const { return state_; }
  /// Those of them that the optimizer's formula reads and writes.
  std::vector<at::Tensor> buffers() const;

 private:
  UpdateNumbers numbers_;
  double rate_ = 1.0;
  NamedTensors state_;  ///< the formula's, then mean_
  std::vector<std::int64_t> places_;
  double decay_;
  at::Tensor mean_;  ///< of gradients; undefined where they are not projected
  at::Tensor scratch_;
};

/// Orthogonal gradients, Han et al., arXiv 2504.01961: takes from each tensor's part g of
/// `gradient`, a sum of `count`, its projection on the same part c of `mean`,
///   g <- g - (g.c / c.c) c,
/// and then makes c <- decay c + (1 - decay) g / count, with g as it came. The paper writes g and
/// c for a network as a whole, and its authors have published no code. Here each tensor is
/// projected by itself, as the optimizers go through parameters, so that the cut does not change
/// the rule. A gradient that is not finite leaves `mean` as it is; one whose products overflow, or
/// that meets a mean of 0, stays whole. Both are flat, float, of one layout and device; `places`:
/// Parameters::places(). One call of the operator millrace::orthogonalize, made of LibTorch's
/// operators, none of which asks the host, so that it may be recorded. Reentrant; no-grad mode.
void orthogonalize(at::Tensor& gradient, at::Tensor& mean, at::IntArrayRef places, double decay,
                   int count);

/// The optimizer's formula with a rate that lies on the device: changes `weights` and `state`, as
/// Optimizer::buffers(), in place. Weight decay is done already.
void apply_formula(const UpdateNumbers& n, const at::Tensor& lr, at::Tensor& weights,
                   const at::Tensor& gradient, const std::vector<at::Tensor>& state);

/// What spec.lr is multiplied by in the update after `updates` others: the closed forms of
/// torch.optim.lr_scheduler's StepLR and CosineAnnealingLR, after LinearLR for spec.warmup updates
/// (joined as SequentialLR does: the schedule begins when the warm-up ends).
double scheduled_rate(const OptimizerSpec& spec, std::int64_t updates);
/// Whether it is always 1.
bool has_constant_rate(const OptimizerSpec& spec);

}  // namespace millrace::stages
