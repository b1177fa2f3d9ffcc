// What a network must beat: always predicting the mean of the frames seen so far.
#pragma once

#include <cstddef>  // sizes
#include <cstdint>  // counts
#include <vector>   // the mean

namespace millrace::tools {

/// The running mean of targets and its loss. Allocates in the constructor alone.
class MeanFrame {
 public:
  explicit MeanFrame(std::size_t elements) : mean_(elements, 0.0f) {}

  /// Mean squared error of the mean so far (of nothing: black) against `target`; then learns it.
  float compare(const float* target) {
    constexpr std::size_t kLanes = 16;  // independent sums, so that the loop becomes vector code
    const float share = 1.0f / float(++seen_);
    float sums[kLanes] = {};
    const auto learn = [&](std::size_t i, float& sum) {
      const float error = target[i] - mean_[i];
      sum += error * error;
      mean_[i] += error * share;
    };
    std::size_t i = 0;
    for (; i + kLanes <= mean_.size(); i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) learn(i + lane, sums[lane]);
    }
    for (; i < mean_.size(); ++i) learn(i, sums[0]);
    float sum = 0;
    for (const float lane : sums) sum += lane;
    return sum / float(mean_.size());
  }

  const std::vector<float>& mean() const { return mean_; }

 private:
  std::vector<float> mean_;
  std::int64_t seen_ = 0;
};

}  // namespace millrace::tools
