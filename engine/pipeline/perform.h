#pragma once

#include <limits>
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

/// Captures, before the workers start: leads those of `steps` (by Schedule::replica_id()) that
/// record through their launch groups, in an order that the schedule allows, until every
/// combination of slots, versions and minibatches has occurred. Leaves no result behind.
/// `schedule`: without replicas. `link_capacity`: see Pipeline.
void capture_steps(const Schedule& schedule, const std::vector<capture::Step*>& steps,
                   std::size_t link_capacity = std::numeric_limits<std::size_t>::max());

/// The longest groups if the host may launch ahead of a device that defers work; otherwise one
/// action each, whose signals neighbours get at once.
LaunchGroups groups_for(const Schedule& schedule, const std::vector<capture::Step*>& steps);

}  // namespace millrace::engine
