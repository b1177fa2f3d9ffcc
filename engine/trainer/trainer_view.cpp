#include <algorithm>
#include <set>
#include <string>

#include "capture/plain_errors.h"
#include "engine/pipeline/exchange.h"
#include "engine/trainer/operations.h"
#include "engine/trainer/trainer.h"

namespace millrace::engine {

DeadUnits Trainer::dead_units(int stage) const {
  const capture::StageStep* const step = step_of(stage);
  if (!step) {
    const auto told = facts_elsewhere_.find(stage);
    return told == facts_elsewhere_.end() ? DeadUnits() : told->second.dead_units;
  }
  const stages::DeadUnits& counted = step->dead_units();
  const bool looks = place_of(options_, schedule_.replica_id(stage, 0)).is_cpu();
  return {counted.dead(), looks ? counted.units() : 0};
}

std::vector<DeadUnits> Trainer::dead_units() const {
  const std::lock_guard lock(cut_mutex_);
  std::vector<DeadUnits> all;
  for (int stage = 0; stage < schedule_.stages; ++stage) all.push_back(dead_units(stage));
  return all;
}

StageFacts Trainer::facts(int stage) const {
  const capture::StageStep* const step = step_of(stage);
  if (!step) {
    const auto told = facts_elsewhere_.find(stage);
    return told == facts_elsewhere_.end() ? StageFacts() : told->second;
  }
  const std::int64_t weights = step->stage().weight_bytes();
  return {.memory = {.weights = weights,
                     .stashes = weights * (schedule_.versions_of(stage) - 1),
                     .optimizer = step->stage().optimizer_bytes(),
                     .gradients = step->stage().gradient_bytes(),
                     .activations = step->peak_activation_bytes()},
          .dead_units = dead_units(stage),
          .recorded = step->records(),
          .left = left_to_libtorch(step->operations())};
}

capture::RateInForce Trainer::rate() const {
  const std::lock_guard lock(cut_mutex_);
  const auto here = std::ranges::find_if(steps_, [](const auto& step) { return step != nullptr; });
  return here == steps_.end() ? capture::RateInForce() : (*here)->rate_in_force();
}

std::vector<StageFacts> Trainer::facts() const {
  std::vector<StageFacts> all;
  for (int stage = 0; stage < schedule_.stages; ++stage) all.push_back(facts(stage));
  return all;
}

stages::StateDict Trainer::state() const {
  stages::StateDict all = checkpoint();
  std::erase_if(all, [](const auto& entry) { return entry.first.starts_with("optimizer."); });
  return all;
}

stages::StateDict Trainer::checkpoint() const {
  stages::StateDict all;
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    const auto told = learned_elsewhere_.find(stage);
    if (step_of(stage)) {
      for (auto& entry : checkpoint(stage)) all.push_back(std::move(entry));
    } else if (told != learned_elsewhere_.end()) {
      all.insert(all.end(), told->second.begin(), told->second.end());
    }
  }
  if (!options_.exchange || options_.exchange->rank() != 0 || !learned_elsewhere_.empty())
    return all;
  // The others have learned nothing yet.
  std::set<std::string> names;
  for (const auto& entry : all) names.insert(entry.first);
  for (const auto& entry : options_.weights) {
    if (!names.contains(entry.first)) all.push_back(entry);
  }
  return all;
}

stages::StateDict Trainer::checkpoint(int stage) const {
  capture::StageStep& step = *step_of(stage);
  return capture::with_plain_errors([&] {
    step.launch();  // work already called belongs to the state, and must end first
    step.synchronize();
    return step.stage().checkpoint();
  });
}

}  // namespace millrace::engine
