#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

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
  MeanFrame(const stages::ImageShape& target, const stages::LossSpec& loss)
      : shape_(target),
        loss_(loss),
        single_(loss_.single()),
        mean_(std::size_t(target.elements())),
        // Equal probabilities at the start, as of one sample spread over all classes.
        seen_(loss_.scores() ? 1 : 0) {
    tensor_of(mean_.data()).copy_(loss_.prior(tensor_of(mean_.data())));
    if (single_ && single_->scores && shape_.height * shape_.width > 1) single_ = nullptr;
    if (single_) return;
    for (const float mean : mean_) counts_.push_back(mean > 0 ? 1.0f : 0.0f);
  }

  /// The loss of the mean so far (black before the first) against `target`; then adds `target`.
  float compare(const float* target) {
    if (!single_) return compare_tensors(target);
    // The default loss is inlined so that the loop vectorizes.
    return single_ == &stages::loss_types().front()
               ? compare(target,
                         [](float mean, float seen) { return (seen - mean) * (seen - mean); })
               : compare(target, single_->element);
  }
  float loss_of(const float* prediction, const float* target) const {
    const c10::NoGradGuard no_grad;
    return loss_.of(tensor_of(prediction), tensor_of(target)).item<float>();
  }

  const std::vector<float>& mean() const { return mean_; }
  /// Whether there is a mean yet: for pictures, after the first one.
  bool known() const {
    return seen_ > 0 || std::any_of(counts_.begin(), counts_.end(), [](float n) { return n > 0; });
  }

 private:
  at::Tensor tensor_of(const float* data) const {
    return at::from_blob(const_cast<float*>(data), shape_.sizes());
  }
  template <class Element>
  float compare(const float* target, const Element& element) {
    const float share = 1.0f / float(++seen_);
    const float sum = sum_in_lanes(mean_.size(), [&](std::size_t i) {
      const float loss = element(mean_[i], target[i]);
      mean_[i] += (target[i] - mean_[i]) * share;
      return loss;
    });
    return single_->scores ? sum : sum / float(mean_.size());
  }
  float compare_tensors(const float* target) {
    const c10::NoGradGuard no_grad;
    const at::Tensor seen = tensor_of(target);
    at::Tensor mean = tensor_of(mean_.data()), counts = tensor_of(counts_.data());
    const float loss = loss_.of(mean, seen, /*mean=*/true).item<float>();
    const at::Tensor counted = loss_.counted(seen);
    counts.add_(counted);
    mean.add_((seen - mean) * counted / counts.clamp_min(1));
    return loss;
  }

  const stages::ImageShape shape_;
  const stages::Loss loss_;
  const stages::LossType* single_;  ///< null: computed with tensors
  std::vector<float> mean_;
  std::int64_t seen_;
  std::vector<float> counts_;  ///< per element, only with tensors: targets seen
};

}  // namespace millrace::app
