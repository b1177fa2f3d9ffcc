#pragma once

#include <vector>

#include "engine/plan/profile.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

/// Makes every worker of the schedule run its own actions in order, as many workers at once as
/// there are cores, each on its own core, for `seconds` and at least a few periods, recorded or
/// eager as `options` would run. No worker waits: the slots hold messages from neighbours that were
/// computed beforehand. So it measures the stages' own work, with the schedule's slots and versions
/// and all cores busy, but no waiting. Times are medians in milliseconds; an undivided backward
/// counts as the weights' gradient. Bytes: messages, weights, optimizer's state. `options`: with
/// cut and weights; CPU cores only, no replicas. Blocks. Throws as schedule_of().
std::vector<plan::StageCosts> measure_stages(const TrainerOptions& options, double seconds);

}  // namespace millrace::engine
