// The streams that recorded stages run on, and how stages share a device.
#pragma once

#include <memory>  // streams
#include <vector>  // one a stage

#include "capture/backend.h"
#include "engine/trainer/trainer.h"

namespace millrace::engine {

/// Whether the step of Schedule::unit() `unit` is recorded, where steps are.
bool records_on_device(const TrainerOptions& options, int unit);

/// Stages whose steps may be recorded on one device, by Schedule::unit(): a list for each device
/// that has several.
std::vector<std::vector<int>> stages_sharing(const TrainerOptions& options);

/// Whether a device is to be split among its stages.
bool splits_device(const TrainerOptions& options);

/// Throws std::invalid_argument, "pipeline.sharing: ...", if a device is to be split among stages
/// whose steps are not recorded. `options`: correction and devices named.
void require_sharing(const TrainerOptions& options);

/// A stream for each stage that is recorded, null for the others, [stages]; there are no replicas.
/// On a device that is split, each has SMs in proportion to module_ms summed over its stage. Throws
/// std::runtime_error, "pipeline.sharing: ...", for a device that can't be split so.
std::vector<std::unique_ptr<capture::Backend>> make_stage_streams(const TrainerOptions& options);

}  // namespace millrace::engine
