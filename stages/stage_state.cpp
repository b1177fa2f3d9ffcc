#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "stages/stage.h"

namespace millrace::stages {
namespace {

// The rate schedule's count of updates as two digits, since a float holds integers up to 2^24.
constexpr char kCount[] = "scheduled";
constexpr std::int64_t kCountBase = 1 << 24;

}  // namespace

Change Stage::advance() {
  Change change{.from = newest_buffer(),
                .count = std::exchange(added_, 0),
                .sum = sum(),
                .head = std::exchange(has_local_, false) || !supervised()};
  ++newest_;
  change.to = newest_buffer();
  return change;
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
  const at::Tensor finite =
      optimizer_.update(versions_[change.from].flat(), versions_[change.to].flat(), *gradient,
                        count, rate, skipped, {}, correction_ ? &*correction_ : nullptr);
  if (head_ && change.head) head_->update(count, rate, skipped, finite);
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

Tensors Stage::lasting(int buffer) const {
  Tensors all = {versions_[buffer].flat()};
  for (const auto& [name, buffer] : optimizer_.state()) all.push_back(buffer);
  if (head_) {
    for (const auto& [name, buffer] : head_->state()) all.push_back(buffer);
  }
  return all;
}

// With dead ReLUs, a stage's gradient stays finite while the head diverges, which the guard does
// not check.
void Stage::revive_head() const {
  if (!head_) return;
  const c10::NoGradGuard no_grad;
  const NamedTensors state = head_->state();
  const auto finite = [](const auto& entry) {
    return at::isfinite(entry.second).all().template item<bool>();
  };
  if (std::ranges::all_of(state, finite)) return;
  for (std::size_t i = 0; i < state.size(); ++i) {
    const at::Tensor& now = state[i].second;
    if (snapshots_.empty()) {
      now.zero_();
    } else {
      now.copy_(*(snapshots_.back().end() - std::ptrdiff_t(state.size() - i)));
    }
  }
}

void Stage::take_snapshot(int from) {
  revive_head();
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
  snapshots_.resize(1);                           // a newer snapshot may hold diverged weights
  if (correction_) correction_->restart(now[0]);  // its memory is of the diverged weights
}

std::int64_t Stage::optimizer_bytes() const {
  return optimizer_.bytes() + (head_ ? head_->bytes() : 0);
}

std::int64_t Stage::gradient_bytes() const {
  std::int64_t bytes = mean_.defined() ? std::int64_t(mean_.nbytes()) : 0;
  for (const at::Tensor& sum : gradients_) bytes += std::int64_t(sum.nbytes());
  return bytes;
}

StateDict Stage::optimizer_entries() const {
  StateDict all;
  NamedTensors state = optimizer_.state();
  if (correction_) std::ranges::copy(correction_->state(), std::back_inserter(state));
  for (const auto& [name, buffer] : state) {
    const bool one_number = buffer.numel() == 1;
    const Tensors views = one_number ? Tensors() : parameters().views_of(buffer);
    for (std::size_t i = 0; i < parameters().specs().size(); ++i) {
      const ParameterSpec& spec = parameters().specs()[i];
      if (!spec.fixed)
        all.emplace_back(entry_name(name, spec.name), one_number ? buffer : views[i]);
    }
  }
  if (head_) {
    for (const auto& [name, buffer] : head_->state())
      all.emplace_back(head_entry_name(name, range_.end - 1), buffer);
  }
  return all;
}

bool Stage::keeps_count() const {
  const bool anneals = correction_ && correction_->rate(0) != correction_->rate(1);
  return (anneals || !has_constant_rate(spec_)) && parameters().learn();
}

StateDict Stage::checkpoint() const {
  revive_head();
  StateDict all = parameters().state();
  for (const auto& [name, value] : optimizer_entries())
    all.emplace_back(name, value.to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true));
  if (!keeps_count()) return all;
  const at::Tensor count = at::empty({2});
  count[0].fill_(double(updates_ / kCountBase));
  count[1].fill_(double(updates_ % kCountBase));
  for (const ParameterSpec& spec : parameters().specs())
    if (!spec.fixed) all.emplace_back(entry_name(kCount, spec.name), count);
  return all;
}

void Stage::set_fixed(const StateDict& state) {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters().specs().size(); ++i) {
    const ParameterSpec& spec = parameters().specs()[i];
    for (const auto& [name, value] : state) {
      if (spec.fixed && spec.name == name) at::Tensor(parameters().views()[i]).copy_(value);
    }
  }
}

void Stage::restore(const StateDict& state) {
  load_state(parameters(), state);
  const c10::NoGradGuard no_grad;
  if (correction_) correction_->restart(parameters().flat());  // its memory is of other weights
  const std::unordered_map<std::string, at::Tensor> by_name(state.begin(), state.end());
  for (auto& [name, value] : optimizer_entries()) {
    const auto found = by_name.find(name);
    if (found != by_name.end() && found->second.sizes() == value.sizes())
      at::Tensor(value).copy_(found->second);
  }
  for (const ParameterSpec& spec : parameters().specs()) {
    const auto found = by_name.find(entry_name(kCount, spec.name));
    if (!keeps_count() || found == by_name.end() || found->second.numel() != 2) continue;
    updates_ = std::int64_t(found->second[0].item<float>()) * kCountBase +
               std::int64_t(found->second[1].item<float>());
  }
}

}  // namespace millrace::stages
