// Update rules, on the flat buffer of a stage's weights.
#pragma once

#include <ATen/core/Tensor.h>  // at::Tensor

#include <memory>   // std::unique_ptr<Optimizer>
#include <string>   // names
#include <utility>  // state
#include <vector>   // names

#include "stages/optimizer_spec.h"

namespace millrace::stages {

/// Thread-bound. Holds the state (momenta, second moments) of one stage.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// weights <- weights + change(gradient), in place; both are flat buffers of one layout.
  /// `gradient` may be overwritten. Must run in no-grad mode.
  virtual void step(at::Tensor& weights, at::Tensor& gradient) = 0;
  /// Multiplies the rate from now on, until set anew.
  void set_rate(double factor) { rate_ = factor; }
  /// What must be kept to go on later, by name: buffers laid out as the weights, or single numbers
  /// ([1]). They alias the state: copy to save, copy_ into to restore.
  virtual std::vector<std::pair<std::string, at::Tensor>> state() const = 0;

 protected:
  double rate_ = 1.0;
};

/// `weights` gives size and device of the state. Throws std::invalid_argument for an unknown kind.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec, const at::Tensor& weights);

}  // namespace millrace::stages
