#include "tools/app/outputs/mean_frame.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace millrace::app {
namespace {

at::Tensor tensor_of(const float* data, const stages::ImageShape& shape) {
  return at::from_blob(const_cast<float*>(data), shape.sizes());
}

}  // namespace

MeanFrame::MeanFrame(const stages::ImageShape& target, const stages::LossSpec& loss)
    : shape_(target),
      loss_(loss),
      single_(loss_.single()),
      mean_(std::size_t(target.elements())),
      // Equal probabilities at the start, as of one sample spread over all classes.
      seen_(loss_.scores() ? 1 : 0) {
  tensor_of(mean_.data(), shape_).copy_(loss_.prior(tensor_of(mean_.data(), shape_)));
  if (single_ && single_->scores && shape_.height * shape_.width > 1) single_ = nullptr;
  if (single_) return;
  for (const float mean : mean_) counts_.push_back(mean > 0 ? 1.0f : 0.0f);
}

float MeanFrame::compare(const float* target) {
  if (!single_) return compare_tensors(target);
  // The default loss is inlined so that the loop vectorizes.
  return single_ == &stages::loss_types().front()
             ? compare(target, [](float mean, float seen) { return (seen - mean) * (seen - mean); })
             : compare(target, single_->element);
}

template <class Element>
float MeanFrame::compare(const float* target, const Element& element) {
  const float share = 1.0f / float(++seen_);
  const float sum = sum_in_lanes(mean_.size(), [&](std::size_t i) {
    const float loss = element(mean_[i], target[i]);
    mean_[i] += (target[i] - mean_[i]) * share;
    return loss;
  });
  return single_->scores ? sum : sum / float(mean_.size());
}

float MeanFrame::compare_tensors(const float* target) {
  const c10::NoGradGuard no_grad;
  const at::Tensor seen = tensor_of(target, shape_);
  at::Tensor mean = tensor_of(mean_.data(), shape_), counts = tensor_of(counts_.data(), shape_);
  const float loss = loss_.of(mean, seen, /*mean=*/true).item<float>();
  const at::Tensor counted = loss_.counted(seen);
  counts.add_(counted);
  mean.add_((seen - mean) * counted / counts.clamp_min(1));
  return loss;
}

float MeanFrame::loss_of(const float* prediction, const float* target) const {
  const c10::NoGradGuard no_grad;
  return loss_.of(tensor_of(prediction, shape_), tensor_of(target, shape_)).item<float>();
}

}  // namespace millrace::app
