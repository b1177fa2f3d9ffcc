// What changes a stage's weights, and what outlives a run.
#include <ATen/ATen.h>          // operators
#include <c10/core/GradMode.h>  // NoGradGuard

#include <cmath>          // isfinite, infinity
#include <unordered_map>  // entries by name
#include <utility>        // exchange

#include "stages/guarded_update.h"
#include "stages/stage.h"

namespace millrace::stages {

bool Stage::update() {
  const c10::NoGradGuard no_grad;
  if (as_recorded_) {
    const at::TensorOptions here = parameters().flat().options();
    const at::Tensor rate = at::full({}, next_rate(), here.dtype(at::kDouble));
    at::Tensor skipped = at::zeros({}, here);
    const int count = std::exchange(accumulated_, 0), from = buffer_of(newest_);
    guarded_update(from, buffer_of(advance()), count, rate, skipped);
    return skipped.item<float>() == 0;
  }
  at::Tensor* gradient = &gradients_[sum()];
  int count = accumulated_;
  if (!replicas_.empty()) {
    mean_.copy_(replicas_[0]->gradients_[sum()]);
    for (std::size_t i = 1; i < replicas_.size(); ++i) mean_.add_(replicas_[i]->gradients_[sum()]);
    count *= int(replicas_.size());
    gradient = &mean_;
  }
  const double rate = next_rate();
  const bool learns = !parameters().specs().empty();
  if (learns && !std::isfinite(at::linalg_vector_norm(*gradient, INFINITY).item<float>())) {
    skip_update();
    return false;
  }
  if (count > 1) gradient->div_(count);
  skip_update();
  if (learns) {
    if (correction_) correction_->correct(*gradient, parameters().flat(), {});
    optimizer_->set_rate(rate);
    optimizer_->step(parameters().flat(), *gradient);
    if (correction_) correction_->updated(parameters().flat(), {});
  }
  if (read_out_) {
    read_out_->set_rate(rate);
    read_out_->update(count);
  }
  return true;
}

double Stage::next_rate() {
  return rate_ * asked_rate_ * (correction_ ? correction_->rate(applied_++) : 1.0);
}

void Stage::guarded_update(int from, int to, int count, const at::Tensor& rate,
                           at::Tensor& skipped) {
  const c10::NoGradGuard no_grad;
  if (parameters().specs().empty()) return;
  at::Tensor& gradient = gradients_[0];
  const at::Tensor &before = versions_[from].flat(), &after = versions_[to].flat();
  const bool corrects = correction_ && !correction_->only_rate();
  if (!corrects) {
    const at::Tensor finite = check_and_update(
        spec_, {.from = before, .to = after, .gradient = gradient, .state = optimizer_->state()},
        count, rate, skipped);
    if (read_out_) read_out_->guarded_update(count, rate, finite);
    return;
  }
  const at::Tensor finite = at::isfinite(at::linalg_vector_norm(gradient, INFINITY));
  if (count > 1) gradient.div_(count);
  correction_->correct(gradient, before, finite);
  stages::guarded_update(
      spec_, {.from = before, .to = after, .gradient = gradient, .state = optimizer_->state()}, 1,
      rate, finite);
  correction_->updated(after, finite);
  skipped.add_(finite.logical_not());
}

void Stage::fill_gradients(double value) {
  const c10::NoGradGuard no_grad;
  for (at::Tensor& sum : gradients_) sum.fill_(value);
}

void Stage::copy_weights(int from, int to) {
  const c10::NoGradGuard no_grad;
  if (from != to) versions_[to].flat().copy_(versions_[from].flat());
}

void Stage::skip_update() {
  accumulated_ = 0;
  const int before = buffer_of(newest_);
  copy_weights(before, buffer_of(advance()));
}

Tensors Stage::lasting(int buffer) const {
  Tensors all = {versions_[buffer].flat()};
  for (const auto& [name, buffer] : optimizer_->state()) all.push_back(buffer);
  if (read_out_) {
    for (const auto& [name, buffer] : read_out_->state()) all.push_back(buffer);
  }
  return all;
}

void Stage::take_snapshot() {
  take_snapshot(buffer_of(newest_));
}

void Stage::take_snapshot(int from) {
  const c10::NoGradGuard no_grad;
  Tensors copy;
  for (const at::Tensor& buffer : lasting(from)) copy.push_back(buffer.clone());
  if (snapshots_.size() == 2) snapshots_.erase(snapshots_.begin());
  snapshots_.push_back(std::move(copy));
}

void Stage::roll_back(double factor) {
  skip_update();
  slow_down(factor);
  restore_snapshot(buffer_of(newest_));
}

void Stage::restore_snapshot(int to) {
  if (snapshots_.empty()) return;
  const c10::NoGradGuard no_grad;
  const Tensors now = lasting(to);
  for (std::size_t i = 0; i < now.size(); ++i) now[i].copy_(snapshots_.front()[i]);
  snapshots_.resize(1);                           // a newer one may hold what led astray
  if (correction_) correction_->restart(now[0]);  // it has followed the weights astray
}

std::int64_t Stage::optimizer_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [name, buffer] : optimizer_->state()) bytes += std::int64_t(buffer.nbytes());
  return bytes + (read_out_ ? read_out_->bytes() : 0);
}

std::int64_t Stage::gradient_bytes() const {
  std::int64_t bytes = mean_.defined() ? std::int64_t(mean_.nbytes()) : 0;
  for (const at::Tensor& sum : gradients_) bytes += std::int64_t(sum.nbytes());
  return bytes;
}

namespace {

std::string entry_name(const std::string& buffer, const ParameterSpec& parameter) {
  return "optimizer." + buffer + "." + parameter.name;
}

}  // namespace

std::string Stage::read_out_entry(const std::string& buffer) const {
  return "optimizer.read_out." + buffer + "." + std::to_string(range_.end - 1);
}

StateDict Stage::checkpoint() const {
  StateDict all = parameters().state();
  for (const auto& [name, buffer] : optimizer_->state()) {
    const bool one_number = buffer.numel() == 1;
    const std::vector<at::Tensor> views =
        one_number ? std::vector<at::Tensor>{} : parameters().views_of(buffer);
    for (std::size_t i = 0; i < parameters().specs().size(); ++i) {
      const at::Tensor& value = one_number ? buffer : views[i];
      all.emplace_back(entry_name(name, parameters().specs()[i]),
                       value.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
    }
  }
  if (read_out_) {
    for (const auto& [name, buffer] : read_out_->state())
      all.emplace_back(read_out_entry(name), buffer.to(at::kCPU, false, /*copy=*/true));
  }
  return all;
}

void Stage::restore(const StateDict& state) {
  load_state(parameters(), state);
  const c10::NoGradGuard no_grad;
  std::unordered_map<std::string, at::Tensor> by_name(state.begin(), state.end());
  for (const auto& [name, buffer] : optimizer_->state()) {
    const bool one_number = buffer.numel() == 1;
    const std::vector<at::Tensor> views =
        one_number ? std::vector<at::Tensor>{} : parameters().views_of(buffer);
    for (std::size_t i = 0; i < parameters().specs().size(); ++i) {
      const auto found = by_name.find(entry_name(name, parameters().specs()[i]));
      at::Tensor into = one_number ? buffer : views[i];
      if (found != by_name.end() && found->second.sizes() == into.sizes())
        into.copy_(found->second);
    }
  }
  if (correction_) correction_->restart(parameters().flat());  // it knew other weights
  if (!read_out_) return;
  for (const auto& [name, buffer] : read_out_->state()) {
    const auto found = by_name.find(read_out_entry(name));
    if (found != by_name.end() && found->second.sizes() == buffer.sizes())
      buffer.copy_(found->second);
  }
}

}  // namespace millrace::stages
