// Update rules, on the flat buffer of a stage's weights.
#pragma once

#include <ATen/core/Tensor.h>  // at::Tensor

#include <memory>  // std::unique_ptr<Optimizer>
#include <string>  // names
#include <vector>  // names

namespace millrace::stages {

/// The [optimizer] table. Names, defaults and formulas are torch.optim's.
struct OptimizerSpec {
  std::string kind = "sgd";  ///< sgd | rmsprop | adam | adamw
  double lr = 0.01;
  double momentum = 0.0;      ///< sgd, rmsprop
  double weight_decay = 0.0;  ///< decoupled in adamw, added to the gradient elsewhere
  double beta1 = 0.9;         ///< adam, adamw
  double beta2 = 0.999;       ///< adam, adamw
  double alpha = 0.99;        ///< rmsprop
  double eps = 1e-8;          ///< rmsprop, adam, adamw
};

/// Thread-bound. Holds the state (momenta, second moments) of one stage.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// weights <- weights + change(gradient), in place; both are flat buffers of one layout.
  /// `gradient` may be overwritten. Must run in no-grad mode.
  virtual void step(at::Tensor& weights, at::Tensor& gradient) = 0;
};

/// `weights` gives size and device of the state. Throws std::invalid_argument for an unknown kind.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec, const at::Tensor& weights);

/// Every value OptimizerSpec::kind can take.
const std::vector<std::string>& optimizer_names();

}  // namespace millrace::stages
