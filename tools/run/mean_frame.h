// What a network must beat: always predicting the mean of the targets seen so far.
#pragma once

#include <cstddef>  // sizes
#include <cstdint>  // counts
#include <vector>   // the mean

#include "stages/loss.h"

namespace millrace::tools {

/// The running mean of targets and its loss; of classes: how often each came. Allocates in the
/// constructor alone.
class MeanFrame {
 public:
  /// `loss`: an entry of stages::loss_types().
  MeanFrame(std::size_t elements, const stages::LossType& loss)
      : loss_(loss),
        // Probabilities begin equal, as if one sample had been spread over all classes.
        mean_(elements, loss.scores ? 1.0f / float(elements) : 0.0f),
        seen_(loss.scores ? 1 : 0) {}

  /// The loss of the mean so far (of no picture: black) against `target`; then learns it.
  float compare(const float* target) {
    // The default by name, so that the loop becomes vector code.
    return &loss_ == &stages::loss_types().front()
               ? compare(target,
                         [](float mean, float seen) { return (seen - mean) * (seen - mean); })
               : compare(target, loss_.element);
  }

  const std::vector<float>& mean() const { return mean_; }

 private:
  template <class Element>
  float compare(const float* target, const Element& element) {
    constexpr std::size_t kLanes = 16;  // independent sums
    const float share = 1.0f / float(++seen_);
    float sums[kLanes] = {};
    const auto learn = [&](std::size_t i, float& sum) {
      sum += element(mean_[i], target[i]);
      mean_[i] += (target[i] - mean_[i]) * share;
    };
    std::size_t i = 0;
    for (; i + kLanes <= mean_.size(); i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) learn(i + lane, sums[lane]);
    }
    for (; i < mean_.size(); ++i) learn(i, sums[0]);
    float sum = 0;
    for (const float lane : sums) sum += lane;
    return loss_.scores ? sum : sum / float(mean_.size());
  }

  const stages::LossType& loss_;
  std::vector<float> mean_;
  std::int64_t seen_;
};

}  // namespace millrace::tools
