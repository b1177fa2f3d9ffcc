// What a prediction is held against its target by.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "stages/training_spec.h"

namespace at {
class Tensor;
}

namespace millrace::stages {

/// A loss: an entry of the table beside its code.
struct LossType {
  std::string name;
  std::string summary;
  /// Of `prediction` and `target`, of one shape [1,C,H,W]: a scalar with its graph, PyTorch's own
  /// function of that name. `term`: what the config says of it; weight and channels are not its
  /// concern.
  at::Tensor (*of)(const at::Tensor& prediction, const at::Tensor& target, const LossTerm& term);
  /// One element's share of it, before `of` takes the mean over all elements; `scores`: before it
  /// adds up the classes, and the prediction is their probability. Null: it is no sum of shares.
  float (*element)(float prediction, float target);
  /// Predictions are scores of classes, any number each; others lie between 0 and 1. Targets are 1
  /// for the class; a pixel where all are 0 has none, and counts for nothing.
  bool scores = false;
  int least_side = 1;  ///< of a picture that it can be taken of
};

/// Every value that task.loss can take, the default first.
const std::deque<LossType>& loss_types();
/// Adds one, before any thread but the caller's uses the table. Throws std::invalid_argument if the
/// name is taken.
void add_loss_type(LossType type);
/// Throws std::invalid_argument for a name that is not in the table.
const LossType& loss_type(const std::string& name);

/// What a LossSpec means. Immutable, hence reentrant.
class Loss {
 public:
  /// Throws std::invalid_argument, "task.loss: ...", for a kind that is not in the table.
  explicit Loss(const LossSpec& spec);
  /// Of `prediction` and `target`, of one shape [1,C,H,W]: a scalar with its graph.
  /// `mean`: the prediction is targets' running mean, so that classes have probabilities.
  at::Tensor of(const at::Tensor& prediction, const at::Tensor& target, bool mean = false) const;
  /// Targets' mean before any was seen, as `target`: 0; of classes: all alike.
  at::Tensor prior(const at::Tensor& target) const;
  /// As `target`: 1 where it tells something, 0 where a pixel has no class.
  at::Tensor counted(const at::Tensor& target) const;
  /// The one term, where its mean can be had element by element; null else.
  const LossType* single() const;
  /// Every term is of classes.
  bool scores() const;
  /// Throws std::invalid_argument, "task.loss: ...", where it can't be taken of [channels,H,W];
  /// sizes of 0 are not known yet.
  void require_fit(std::int64_t channels, std::int64_t height, std::int64_t width) const;

 private:
  struct Term {
    const LossType* type;
    LossTerm spec;
  };
  static at::Tensor part(const at::Tensor& whole, const LossTerm& term);

  std::vector<Term> terms_;
};

}  // namespace millrace::stages
