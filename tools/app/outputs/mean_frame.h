// What a network must beat: always predicting the mean of the targets seen so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stages/loss.h"
#include "stages/model_spec.h"

namespace millrace::app {

/// The running mean of targets and its loss; of classes: how often each came. Where the loss is one
/// whose share of each element is known, it allocates in the constructor alone.
class MeanFrame {
 public:
  MeanFrame(const stages::ImageShape& target, const stages::LossSpec& loss);

  /// The loss of the mean so far (of no picture: black) against `target`; then learns it.
  float compare(const float* target);
  /// The loss of `prediction`, as large, against `target`.
  float loss_of(const float* prediction, const float* target) const;

  const std::vector<float>& mean() const { return mean_; }

 private:
  template <class Element>
  float compare(const float* target, const Element& element);
  float compare_tensors(const float* target);

  const stages::ImageShape shape_;
  const stages::Loss loss_;
  const stages::LossType* single_;  ///< null: tensors are compared
  std::vector<float> mean_;
  std::int64_t seen_;
  std::vector<float> counts_;  ///< by element, with tensors: targets seen
};

}  // namespace millrace::app
