// Which backend each stage's step runs on: recorded or eager.
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

/// Throws std::invalid_argument, "pipeline.threads: ...", unless options.threads has one count a
/// stage that this machine's cores can serve, above 1 for step programs alone.
void require_threads(const TrainerOptions& options);

/// A backend for each of `replica_ids` that is `here` (empty: all); all eager unless `record`.
std::vector<std::unique_ptr<capture::Backend>> make_backends(
    const TrainerOptions& options, int replica_ids, bool record,
    const std::function<bool(int)>& here = {});

}  // namespace millrace::engine
