#pragma once

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "capture/step.h"
#include "engine/schedule/launch_groups.h"
#include "engine/schedule/lowering.h"

namespace millrace::engine {

/// Runs the step's call for `next`. Sample n is in slot n mod `slots`.
inline void perform(capture::Step& step, const Lowered& next, int slots) {
  const Action& action = next.action;
  const int slot = int(action.sample % slots), gradient = int(action.gradient % slots);
  switch (action.op) {
    case Op::forward:
      step.forward(slot, action.version);
      if (next.gives.find(Signal::Kind::release)) step.discard(slot);
      return;
    case Op::backward_local:
      return step.backward_local(slot);
    case Op::recompute:
      return step.recompute(slot);
    case Op::backward:
      return step.backward(slot, gradient);
    case Op::backward_input:
      return step.backward_input(slot, gradient);
    case Op::backward_weight:
      return step.backward_weight(slot);
    case Op::update:
      return step.update();
  }
}

/// The longest groups if the host may launch ahead of a device that defers work; otherwise one
/// action each, whose signals neighbours get at once.
inline LaunchGroups groups_for(const Schedule& schedule, const std::vector<capture::Step*>& steps) {
  const bool defers =
      std::ranges::any_of(steps, [](const auto* step) { return step && step->defers(); });
  return defers ? longest_launch_groups(schedule) : LaunchGroups(schedule);
}

/// Captures, before the workers start: leads those of `steps` (by Schedule::replica_id()) that
/// record through their launch groups, in an order that the schedule allows, until every
/// combination of slots, versions and minibatches has occurred. Leaves no result behind.
/// `schedule`: without replicas. `link_capacity`: see Pipeline.
inline void capture_steps(const Schedule& schedule, const std::vector<capture::Step*>& steps,
                          std::size_t link_capacity = std::numeric_limits<std::size_t>::max()) {
  const auto of_recorded = [&](void (capture::Step::*call)()) {
    for (capture::Step* step : steps) {
      if (step && step->records()) (step->*call)();
    }
  };
  of_recorded(&capture::Step::begin_capture_pass);
  const Lowering lowering(schedule);
  const GroupWalk walk = walk_groups(
      schedule, groups_for(schedule, steps), samples_to_record(schedule),
      [&](int worker, const Action& action) {
        capture::Step* const step = steps[action.stage];
        if (!step || !step->records()) return;
        if (lowering.begins_at_loss(action, /*own_losses=*/!lowering.supervised(action.stage)))
          step->compare(int(action.sample % schedule.slots()));
        perform(*step, lowering(worker, action), schedule.slots());
      },
      [&](int worker) {
        for (const int stage : stages_of(schedule.workers[worker])) {
          if (steps[stage]) steps[stage]->launch();
        }
      },
      link_capacity);
  if (!walk.ended) throw std::logic_error("schedule " + schedule.name + " deadlocks in its groups");
  of_recorded(&capture::Step::end_capture_pass);
}

}  // namespace millrace::engine
