// Stages as trainers and the oracle build them.
#pragma once

#include <functional>
#include <vector>

#include "engine/trainer/trainer_options.h"
#include "stages/stage.h"

namespace millrace::engine {

/// Stage `index` of `network` at `cut`, with `weights`, for Schedule::replica_id() `replica_id`.
/// The oracle and the trainer build them alike. Replicas are not tied yet: tie_replicas() does it
/// where they will stay.
stages::Stage build_stage(const TrainerOptions& options, const Schedule& schedule, int index,
                          int replica_id);
/// All of them, by Schedule::replica_id().
std::vector<stages::Stage> build_stages(const TrainerOptions& options, const Schedule& schedule);

/// Has the replicas of each stage share their gradients. `stages`: by Schedule::replica_id(); null:
/// in another process, and `elsewhere` gives what of replica `from` comes to `to`.
void tie_replicas(const Schedule& schedule, const std::vector<stages::Stage*>& stages,
                  const std::function<const stages::Tensors*(int from, int to)>& elsewhere = {});

}  // namespace millrace::engine
