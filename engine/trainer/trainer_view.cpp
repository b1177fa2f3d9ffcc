// What a trainer shows: its samples, weights and memory.
#include <ATen/ATen.h>  // predictions on the host

#include "capture/plain_errors.h"
#include "engine/trainer/operations.h"
#include "engine/trainer/trainer.h"

namespace millrace::engine {
namespace {

/// Where a feed writes samples of T; null where they are of another kind.
template <class T>
T* written(at::Tensor& buffer) {
  const bool is_one = buffer.scalar_type() == c10::CppTypeToScalarType<T>::value;
  return is_one ? buffer.mutable_data_ptr<T>() : nullptr;
}

}  // namespace

float* Trainer::input(int slot) {
  return written<float>(samples_.input[slot]);
}
float* Trainer::target(int slot) {
  return written<float>(samples_.target[slot]);
}

std::uint8_t* Trainer::input_bytes(int slot) {
  shown_input_.forget(slot);
  return written<std::uint8_t>(samples_.input[slot]);
}
std::uint8_t* Trainer::target_bytes(int slot) {
  if (samples_.target_is_input()) return input_bytes(slot);
  shown_target_.forget(slot);
  return written<std::uint8_t>(samples_.target[slot]);
}

const float* Trainer::shown_input(int slot) {
  return shown_input_.floats(slot, samples_.input[slot]);
}
const float* Trainer::shown_target(int slot) {
  if (samples_.target_is_input()) return shown_input(slot);
  return shown_target_.floats(slot, samples_.target[slot]);
}

const float* Trainer::prediction(int slot) {
  at::Tensor& made = samples_.prediction[slot];
  made = made.contiguous().cpu();
  return made.const_data_ptr<float>();
}

std::vector<DeadUnits> Trainer::dead_units() const {
  const std::lock_guard lock(cut_mutex_);
  std::vector<DeadUnits> all;
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    const int replica_id = schedule_.replica_id(stage, 0);
    const stages::DeadUnits& counted = steps_[std::size_t(replica_id)]->dead_units();
    all.push_back({counted.dead(), place_of(options_, replica_id).is_cpu() ? counted.units() : 0});
  }
  return all;
}

stages::StateDict Trainer::state() const {
  return capture::with_plain_errors([&] {
    stages::StateDict all;
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      for (auto& entry : first(stage).parameters().state()) all.push_back(std::move(entry));
    }
    return all;
  });
}

stages::StateDict Trainer::checkpoint() const {
  stages::StateDict all;
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    for (auto& entry : checkpoint(stage)) all.push_back(std::move(entry));
  }
  return all;
}

stages::StateDict Trainer::checkpoint(int stage) const {
  capture::StageStep& step = *steps_[std::size_t(schedule_.replica_id(stage, 0))];
  return capture::with_plain_errors([&] {
    step.launch();  // what was called belongs to it, and must be over
    step.synchronize();
    return step.stage().checkpoint();
  });
}

std::vector<StageCapture> Trainer::captures() const {
  std::vector<StageCapture> all;
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    const capture::StageStep& step = *steps_[std::size_t(schedule_.replica_id(stage, 0))];
    all.push_back({.recorded = step.records(), .left = left_to_libtorch(step.operations())});
  }
  return all;
}

std::vector<StageMemory> Trainer::memory() const {
  std::vector<StageMemory> all;
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    const capture::StageStep& step = *steps_[schedule_.replica_id(stage, 0)];
    const std::int64_t weights = step.stage().weight_bytes();
    all.push_back({.weights = weights,
                   .stashes = weights * (schedule_.versions_of(stage) - 1),
                   .optimizer = step.stage().optimizer_bytes(),
                   .gradients = step.stage().gradient_bytes(),
                   .activations = step.peak_activation_bytes()});
  }
  return all;
}

}  // namespace millrace::engine
