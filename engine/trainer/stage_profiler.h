// What a schedule's stages cost on this machine, measured as the schedule will run them.
#pragma once

#include <vector>

#include "engine/plan/costs.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

/// Has every worker of the schedule do its own actions in their order, as many workers at once as
/// there are cores, each on its own core, for `seconds` and at least a few rounds of its period:
/// with recorded steps or eagerly, as `options` would run. Nobody waits for anybody: what
/// neighbours send was made beforehand and lies in the slots. What is measured is hence the stages'
/// own work, on as many slots and versions as the schedule keeps and with the cores beside it busy,
/// and nothing of how workers wait for each other. Times are medians in milliseconds; a backward
/// that is not in two parts stands as the weights' gradient. Bytes: messages, weights, optimizer's
/// state. `options`: with cut and weights; CPU cores alone, no replicas. Blocks; uses threads of
/// its own. Throws std::invalid_argument, as schedule_of() does.
std::vector<plan::StageCosts> measure_stages(const TrainerOptions& options, double seconds);

}  // namespace millrace::engine
