// What changes a stage's weights, and what outlives a run.
#include <ATen/ATen.h>          // operators
#include <c10/core/GradMode.h>  // NoGradGuard

#include <cmath>          // isfinite, infinity
#include <unordered_map>  // entries by name
#include <utility>        // exchange

#include "stages/entry_names.h"
#include "stages/guarded_update.h"
#include "stages/stage.h"

namespace millrace::stages {

Change Stage::advance() {
  Change change{.from = newest_buffer(), .count = std::exchange(added_, 0), .sum = sum()};
  ++newest_;
  change.to = newest_buffer();
  return change;
}

bool Stage::update(const Change& change, double rate) {
  const c10::NoGradGuard no_grad;
  if (as_recorded_) {
    const at::TensorOptions here = parameters().flat().options();
    at::Tensor skipped = at::zeros({}, here);
    guarded_update(change, at::full({}, rate, here.dtype(at::kDouble)), skipped);
    return skipped.item<float>() == 0;
  }
  at::Tensor* gradient = &gradients_[change.sum];
  int count = change.count;
  if (!replicas_.empty()) {
    mean_.copy_((*replicas_[0])[change.sum]);
    for (std::size_t i = 1; i < replicas_.size(); ++i)
      mean_.add_((*replicas_[i])[change.sum].to(mean_.device()));
    count *= int(replicas_.size());
    gradient = &mean_;
  }
  copy_weights(change.from, change.to);
  at::Tensor& weights = versions_[change.to].flat();
  const bool learns = parameters().learn();
  if (learns && !std::isfinite(at::linalg_vector_norm(*gradient, INFINITY).item<float>()))
    return false;
  if (count > 1) gradient->div_(count);
  if (learns) {
    if (correction_) correction_->correct(*gradient, weights, {});
    const at::Tensor before = !correction_ || correction_->only_rate() ? at::Tensor()
                              : change.from == change.to               ? weights.clone()
                                                         : versions_[change.from].flat();
    optimizer_.set_rate(rate);
    optimizer_.step(weights, *gradient);
    if (correction_) correction_->updated(before, weights, {});
  }
  if (head_) {
    head_->set_rate(rate);
    head_->update(count);
  }
  return true;
}

double Stage::next_rate() {
  return rate_ * asked_rate_ * (correction_ ? correction_->rate(applied_++) : 1.0);
}

void Stage::guarded_update(const Change& change, const at::Tensor& rate, at::Tensor& skipped) {
  const c10::NoGradGuard no_grad;
  if (!parameters().learn()) return;
  UpdateBuffers buffers{.from = versions_[change.from].flat(),
                        .to = versions_[change.to].flat(),
                        .gradient = gradients_[0],
                        .state = optimizer_.state()};
  if (correction_) {
    buffers.correction = correction_->numbers();
    buffers.memory = correction_->memory();
  }
  const at::Tensor finite =
      check_and_update(spec_, std::move(buffers), change.count, rate, skipped);
  if (head_) head_->guarded_update(change.count, rate, skipped, finite);
}

void Stage::fill_gradients(double value) {
  const c10::NoGradGuard no_grad;
  for (at::Tensor& sum : gradients_) sum.fill_(value);
}

void Stage::copy_weights(int from, int to) {
  const c10::NoGradGuard no_grad;
  if (from != to) versions_[to].flat().copy_(versions_[from].flat());
}

Tensors Stage::lasting(int buffer) const {
  Tensors all = {versions_[buffer].flat()};
  for (const auto& [name, buffer] : optimizer_.state()) all.push_back(buffer);
  if (head_) {
    for (const auto& [name, buffer] : head_->state()) all.push_back(buffer);
  }
  return all;
}

void Stage::take_snapshot(int from) {
  const c10::NoGradGuard no_grad;
  Tensors copy;
  for (const at::Tensor& buffer : lasting(from)) copy.push_back(buffer.clone());
  if (snapshots_.size() == 2) snapshots_.erase(snapshots_.begin());
  snapshots_.push_back(std::move(copy));
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
  for (const auto& [name, buffer] : optimizer_.state()) bytes += std::int64_t(buffer.nbytes());
  return bytes + (head_ ? head_->bytes() : 0);
}

std::int64_t Stage::gradient_bytes() const {
  std::int64_t bytes = mean_.defined() ? std::int64_t(mean_.nbytes()) : 0;
  for (const at::Tensor& sum : gradients_) bytes += std::int64_t(sum.nbytes());
  return bytes;
}

StateDict Stage::checkpoint() const {
  StateDict all = parameters().state();
  for (const auto& [name, buffer] : optimizer_.state()) {
    const bool one_number = buffer.numel() == 1;
    const std::vector<at::Tensor> views =
        one_number ? std::vector<at::Tensor>{} : parameters().views_of(buffer);
    for (std::size_t i = 0; i < parameters().specs().size(); ++i) {
      if (parameters().specs()[i].fixed) continue;
      const at::Tensor& value = one_number ? buffer : views[i];
      all.emplace_back(entry_name(name, parameters().specs()[i].name),
                       value.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
    }
  }
  if (head_) {
    for (const auto& [name, buffer] : head_->state())
      all.emplace_back(head_entry_name(name, range_.end - 1),
                       buffer.to(at::kCPU, false, /*copy=*/true));
  }
  return all;
}

void Stage::restore(const StateDict& state) {
  load_state(parameters(), state);
  const c10::NoGradGuard no_grad;
  std::unordered_map<std::string, at::Tensor> by_name(state.begin(), state.end());
  for (const auto& [name, buffer] : optimizer_.state()) {
    const bool one_number = buffer.numel() == 1;
    const std::vector<at::Tensor> views =
        one_number ? std::vector<at::Tensor>{} : parameters().views_of(buffer);
    for (std::size_t i = 0; i < parameters().specs().size(); ++i) {
      if (parameters().specs()[i].fixed) continue;
      const auto found = by_name.find(entry_name(name, parameters().specs()[i].name));
      at::Tensor into = one_number ? buffer : views[i];
      if (found != by_name.end() && found->second.sizes() == into.sizes())
        into.copy_(found->second);
    }
  }
  if (correction_) correction_->restart(parameters().flat());  // it knew other weights
  if (!head_) return;
  for (const auto& [name, buffer] : head_->state()) {
    const auto found = by_name.find(head_entry_name(name, range_.end - 1));
    if (found != by_name.end() && found->second.sizes() == buffer.sizes())
      buffer.copy_(found->second);
  }
}

}  // namespace millrace::stages
