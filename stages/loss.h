#pragma once

#include <deque>
#include <string>
#include <vector>

#include "stages/training_spec.h"

namespace at {
class Tensor;
}

namespace millrace::stages {

struct LossType {
  std::string name;
  std::string summary;
  /// Maps `prediction` and `target`, both [1,C,H,W], to a scalar with its graph, by PyTorch's
  /// function of that name; `term`: its config, of which weight and channels are ignored.
  at::Tensor (*of)(const at::Tensor& prediction, const at::Tensor& target, const LossTerm& term);
  /// One element's share, before `of` averages over all elements; with `scores`, before it sums
  /// over classes, of a probability. Null: the loss is no sum of shares.
  float (*element)(float prediction, float target);
  /// Predictions are class scores, of any value; otherwise they are in [0, 1]. Targets are 1 for
  /// the class; a pixel with all 0 has no class and is not counted.
  bool scores = false;
  int least_side = 1;  ///< least side of a picture
};

/// Every value of task.loss, the default first.
const std::deque<LossType>& loss_types();
/// Adds a loss, before other threads use the table. Throws std::invalid_argument if the name is
/// taken.
void add_loss_type(LossType type);

/// A LossSpec as a function. Immutable, hence reentrant.
class Loss {
 public:
  /// Throws std::invalid_argument, "task.loss: ...", for an unknown kind.
  explicit Loss(const LossSpec& spec);
  /// The loss of `prediction` and `target`, both [1,C,H,W]: a scalar with its graph. `mean`: the
  /// prediction is the targets' running mean, so it holds class probabilities.
  at::Tensor of(const at::Tensor& prediction, const at::Tensor& target, bool mean = false) const;
  /// The targets' mean before the first target, shaped as `target`: 0; for classes: uniform.
  at::Tensor prior(const at::Tensor& target) const;
  /// Shaped as `target`: 0 where a pixel has no class, otherwise 1.
  at::Tensor counted(const at::Tensor& target) const;
  /// The only term, if it is a mean of elements; otherwise null.
  const LossType* single() const;
  bool scores() const;
  /// Throws std::invalid_argument, "task.loss: ...", unless [channels,H,W] fits; size 0: unknown.
  void require_fit(std::int64_t channels, std::int64_t height, std::int64_t width) const;

 private:
  struct Term {
    const LossType* type;
    LossTerm spec;
  };
  std::vector<Term> terms_;
};

}  // namespace millrace::stages
