// Update rules, on the flat buffer of a stage's weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "stages/optimizer_spec.h"
#include "stages/update_rule.h"

namespace millrace::stages {

/// Buffers laid out as the weights, or single numbers ([1]), by name.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
/// Throws std::logic_error for a name that is not there.
const at::Tensor& find(const NamedTensors& tensors, const std::string& name);

/// Thread-bound. Holds the state (momenta, second moments) of one stage.
class Optimizer {
 public:
  /// `weights` gives size and device of the state. Throws std::invalid_argument for an unknown
  /// kind.
  Optimizer(const OptimizerSpec& spec, const at::Tensor& weights);
  /// weights <- weights + change(gradient), in place; both are flat buffers of one layout.
  /// `gradient` may be overwritten. Must run in no-grad mode.
  void step(at::Tensor& weights, at::Tensor& gradient);
  /// Multiplies the rate from now on, until set anew.
  void set_rate(double factor) { rate_ = factor; }
  /// What must be kept to go on later. It aliases: copy to save, copy_ into to restore.
  const NamedTensors& state() const { return state_; }

 private:
  OptimizerSpec spec_;
  double rate_ = 1.0;
  NamedTensors state_;
  at::Tensor scratch_;
};

/// One kind of optimizer: an entry of the table in optimizer_rules.cpp. Weight decay is done before
/// its rules: to the weights if it is decoupled, else to the gradient.
struct OptimizerKind {
  std::string name, summary;
  std::vector<std::string> keys;  ///< of [optimizer], beside kind, lr and weight_decay
  bool decoupled = false;
  /// Names of the state; "steps" is a single number.
  std::vector<std::string> (*state)(const OptimizerSpec& spec);
  /// torch.optim's single-tensor formula, in its order of operations, so that a stage and a PyTorch
  /// loop round alike. In place; `scratch` is the rule's own.
  void (*step)(const OptimizerSpec& spec, double lr, at::Tensor& weights, at::Tensor& gradient,
               const NamedTensors& state, at::Tensor& scratch);
  /// The same formula with a rate that is a tensor. Returns the new weights; `state` is a copy, in
  /// which it leaves the new state.
  at::Tensor (*guarded)(const OptimizerSpec& spec, const at::Tensor& lr, const at::Tensor& weights,
                        const at::Tensor& gradient, const NamedTensors& state);
  UpdateRule kernel;
};

const std::vector<OptimizerKind>& optimizers();
/// Throws std::invalid_argument for a name that is not in the table.
const OptimizerKind& optimizer_kind(const std::string& name);

}  // namespace millrace::stages
