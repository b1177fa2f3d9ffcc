// The baseline: always predicting the mean of the targets so far.
#pragma once

#include <cstdint>
#include <vector>

#include "stages/loss.h"
#include "stages/model_spec.h"

namespace millrace::app {

/// The running mean of targets and its loss; for classes: how often each came. If the loss is a sum
/// over elements, only the constructor allocates.
class MeanFrame {
 public:
  MeanFrame(const stages::ImageShape& target, const stages::LossSpec& loss);

  /// The loss of the mean so far (black before the first) against `target`; then adds `target`.
  float compare(const float* target);
  /// The loss of `prediction`, of the same shape, against `target`.
  float loss_of(const float* prediction, const float* target) const;

  const std::vector<float>& mean() const { return mean_; }
  /// Whether there is a mean yet: of pictures, not before the first.
  bool known() const { return seen_ > 0 || !counts_.empty(); }

 private:
  template <class Element>
  float compare(const float* target, const Element& element);
  float compare_tensors(const float* target);

  const stages::ImageShape shape_;
  const stages::Loss loss_;
  const stages::LossType* single_;  ///< null: computed with tensors
  std::vector<float> mean_;
  std::int64_t seen_;
  std::vector<float> counts_;  ///< by element, with tensors only: targets seen
};

}  // namespace millrace::app
