// Before the workers start: steps that record what they will replay are led through it once.
#pragma once

#include <vector>

#include "capture/step.h"
#include "engine/schedule/launch_groups.h"

namespace millrace::engine {

/// Calls the recording ones of `steps` (by Schedule::replica_id()) in an order that the schedule
/// allows, launch group by launch group, until slots, versions and minibatches have met in every
/// way. Nothing is computed that stays. `schedule`: without replicas.
void capture_steps(const Schedule& schedule, const LaunchGroups& groups,
                   const std::vector<capture::Step*>& steps);

}  // namespace millrace::engine
