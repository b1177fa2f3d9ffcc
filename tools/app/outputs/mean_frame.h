#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "stages/loss.h"
#include "stages/model_spec.h"

namespace millrace::app {

/// The sum of term(0), ..., term(count - 1), in independent partial sums, so that it vectorizes.
template <class Term>
float sum_in_lanes(std::size_t count, const Term& term) {
  constexpr std::size_t kLanes = 16;
  float sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(i + lane);
  for (; i < count; ++i) sums[0] += term(i);
  float sum = 0;
  for (const float lane : sums) sum += lane;
  return sum;
}

/// The running mean of targets and its loss; for classes, their frequencies. If the loss is a sum
/// over elements, only the constructor allocates.
class MeanFrame {
 public:
  MeanFrame(const stages::ImageShape& target, const stages::LossSpec& loss);

  /// The loss of the mean so far (black before the first) against `target`; then adds `target`.
  float compare(const float* target);
  float loss_of(const float* prediction, const float* target) const;

  const std::vector<float>& mean() const { return mean_; }
  /// Whether there is a mean yet: for pictures, after the first one.
  bool known() const {
    return seen_ > 0 || std::any_of(counts_.begin(), counts_.end(), [](float n) { return n > 0; });
  }

 private:
  template <class Element>
  float compare(const float* target, const Element& element);
  float compare_tensors(const float* target);

  const stages::ImageShape shape_;
  const stages::Loss loss_;
  const stages::LossType* single_;  ///< null: computed with tensors
  std::vector<float> mean_;
  std::int64_t seen_;
  std::vector<float> counts_;  ///< per element, only with tensors: targets seen
};

}  // namespace millrace::app
