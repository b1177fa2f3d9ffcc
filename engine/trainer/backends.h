// Which backend each stage's step runs on: recorded or eager.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capture/backend.h"
#include "engine/trainer/trainer.h"

namespace millrace::engine {

/// Why no step of `options` can be recorded on any backend; "" if they can.
std::string unrecordable(const TrainerOptions& options);

/// Whether replica `replica_id` (as in Schedule) runs step programs on a core.
bool runs_programs(const TrainerOptions& options, int replica_id);

/// Whether that replica's step is recorded, unless something else forbids it.
bool records(const TrainerOptions& options, int replica_id);

/// Whether any is. Throws std::invalid_argument, "pipeline.capture: ...", if Capture::graph cannot
/// be.
bool records_any(const TrainerOptions& options);

/// Throws std::invalid_argument, "pipeline.threads: ...", unless options.threads has one count per
/// stage that this machine's cores can serve, above 1 only for step programs.
void require_threads(const TrainerOptions& options);

/// A backend for each replica that is `here` (empty: all); all eager unless `record`.
std::vector<std::unique_ptr<capture::Backend>> make_backends(
    const TrainerOptions& options, int replica_ids, bool record,
    const std::function<bool(int)>& here = {});

}  // namespace millrace::engine
