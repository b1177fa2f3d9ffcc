// Which backend each stage's step runs on: recorded or eager, and how stages share a device.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capture/backend.h"
#include "engine/trainer/trainer.h"

namespace millrace::engine {

/// Why no step of `options` can be recorded, wherever there is a backend that could; "" if they
/// can.
std::string unrecordable(const TrainerOptions& options);

/// Whether Schedule::replica_id() `replica_id` runs step programs on a core.
bool runs_programs(const TrainerOptions& options, int replica_id);

/// Whether the step of Schedule::replica_id() `replica_id` is recorded, unless something else
/// forbids it.
bool records(const TrainerOptions& options, int replica_id);

/// Whether any step is. Throws std::invalid_argument, "pipeline.capture: ...", for steps that are
/// to be recorded by name and can't be.
bool records_any(const TrainerOptions& options);

/// Stages whose steps may be recorded on one device, by Schedule::replica_id(): a list for each
/// device that has several.
std::vector<std::vector<int>> stages_sharing(const TrainerOptions& options);

/// Whether a device is to be split among its stages.
bool splits_device(const TrainerOptions& options);

/// Throws std::invalid_argument, "pipeline.sharing: ...", if a device is to be split among stages
/// whose steps are not recorded. `options`: correction and devices named.
void require_sharing(const TrainerOptions& options);

/// Throws std::invalid_argument, "pipeline.threads: ...", unless options.threads has one count a
/// stage that this machine's cores can serve, above 1 for step programs alone.
void require_threads(const TrainerOptions& options);

/// A backend for each of `replica_ids` that is `here` (empty: all); all eager unless `record`. On a
/// device that is split, each has SMs in proportion to module_ms summed over its stage. Throws
/// std::runtime_error, "pipeline.sharing: ...", for a device that can't be split so.
std::vector<std::unique_ptr<capture::Backend>> make_backends(
    const TrainerOptions& options, int replica_ids, bool record,
    const std::function<bool(int)>& here = {});

}  // namespace millrace::engine
