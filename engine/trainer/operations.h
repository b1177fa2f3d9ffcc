// What a stage's step consists of when it is a step program.
#pragma once

#include <vector>

#include "capture/program/program.h"
#include "engine/trainer/trainer.h"

namespace millrace::engine {

/// The entry of a checkpoint that names the kernels of its step programs: KernelChoices::text(), a
/// character code a number, since a checkpoint holds numbers alone.
inline constexpr const char* kKernelsEntry = "optimizer.kernels";

/// The operations of each stage's step, in order, [stage]; with no cut named, of the whole network
/// as one stage. Each is timed over `rounds` steps on this thread. Replicas are taken for one.
std::vector<std::vector<program::OperationInfo>> stage_operations(TrainerOptions options,
                                                                  int rounds);

/// What each module costs as a step program of its own, in ms.
std::vector<double> module_times_by_programs(TrainerOptions options);

}  // namespace millrace::engine
