#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "stages/guarded_update.h"
#include "stages/stage.h"

namespace millrace::stages {

Change Stage::advance() {
  Change change{.from = newest_buffer(), .count = std::exchange(added_, 0), .sum = sum()};
  has_local_ = false;
  ++newest_;
  change.to = newest_buffer();
  return change;
}

bool Stage::update(const Change& change, double rate) {
  const at::TensorOptions here = parameters().flat().options();
  at::Tensor skipped = at::zeros({}, here);
  update(change, at::full({}, rate, here.dtype(at::kDouble)), skipped);
  return skipped.item<float>() == 0;
}

double Stage::next_rate() {
  static const double recovery = std::exp2(1.0 / 50);
  rate_ = std::min(1.0, rate_ * recovery);
  const std::int64_t update = updates_++;
  return rate_ * asked_rate_ * scheduled_rate(spec_, update) *
         (correction_ ? correction_->rate(update) : 1.0);
}

void Stage::update(const Change& change, const at::Tensor& rate, at::Tensor& skipped) {
  const c10::NoGradGuard no_grad;
  if (!parameters().learn()) return;
  at::Tensor* gradient = &gradients_[change.sum];
  int count = change.count;
  if (!replicas_.empty()) {
    mean_.copy_((*replicas_[0])[change.sum]);
    for (std::size_t i = 1; i < replicas_.size(); ++i)
      mean_.add_((*replicas_[i])[change.sum].to(mean_.device()));
    count *= int(replicas_.size());
    mean_.div_(std::exchange(count, 1));
    gradient = &mean_;
  }
  UpdateNumbers numbers = update_numbers(spec_, count);
  if (correction_) numbers.correction = correction_->numbers();
  optimizer_.orthogonalize(*gradient, count);
  const at::Tensor finite =
      check_and_update(numbers,
                       {.from = versions_[change.from].flat(),
                        .to = versions_[change.to].flat(),
                        .gradient = *gradient,
                        .state = optimizer_.buffers(),
                        .memory = correction_ ? correction_->memory() : Memory()},
                       rate, skipped);
  if (head_) head_->update(count, rate, skipped, finite);
}

Tensors Stage::accumulated() const {
  Tensors all = gradients_;
  if (head_) all.insert(all.end(), head_->gradients().begin(), head_->gradients().end());
  return all;
}

void Stage::fill_gradients(double value) {
  const c10::NoGradGuard no_grad;
  for (at::Tensor& sum : accumulated()) sum.fill_(value);
}

void Stage::copy_weights(int from, int to) {
  const c10::NoGradGuard no_grad;
  if (from != to) versions_[to].flat().copy_(versions_[from].flat());
}

}  // namespace millrace::stages
