#include "engine/pipeline/perform.h"

#include <algorithm>
#include <stdexcept>

namespace millrace::engine {

void capture_steps(const Schedule& schedule, const std::vector<capture::Step*>& steps,
                   std::size_t link_capacity) {
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

LaunchGroups groups_for(const Schedule& schedule, const std::vector<capture::Step*>& steps) {
  const bool defers =
      std::ranges::any_of(steps, [](const auto* step) { return step && step->defers(); });
  return defers ? longest_launch_groups(schedule) : LaunchGroups(schedule);
}

}  // namespace millrace::engine
