// What a prediction is held against its target by.
#pragma once

#include <deque>
#include <string>

namespace at {
class Tensor;
}

namespace millrace::stages {

/// A loss: an entry of the table beside its code.
struct LossType {
  std::string name;
  std::string summary;
  /// Of `prediction` and `target`, of one shape [1,C,H,W]: a scalar with its graph, PyTorch's own
  /// function of that name with its defaults.
  at::Tensor (*of)(const at::Tensor& prediction, const at::Tensor& target);
  /// One element's share of it, before `of` takes the mean over all elements; `scores`: before it
  /// adds up the classes, and the prediction is their probability.
  float (*element)(float prediction, float target);
  /// Predictions are scores of classes, any number each; others lie between 0 and 1.
  bool scores = false;
};

/// Every value that task.loss can take, the default first.
const std::deque<LossType>& loss_types();
/// Throws std::invalid_argument for a name that is not in the table.
const LossType& loss_type(const std::string& name);

}  // namespace millrace::stages
