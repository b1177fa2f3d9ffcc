// What a stage's step consists of when it is a step program.
#pragma once

#include <string>
#include <vector>

#include "capture/program/program.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

/// Operators that a step program leaves to LibTorch, each with how often where it is more than
/// once: "aten::native_group_norm x20".
std::vector<std::string> left_to_libtorch(const std::vector<capture::OperationInfo>& operations);

/// The operations of each stage's step, in order, [stage]; with no cut named, of the whole network
/// as one stage. Each is timed over `rounds` steps on this thread, and the stage's others where it
/// is one of the options'. On the GPU that the options name first if any is timed, else on a core.
/// Replicas are taken for one.
std::vector<std::vector<capture::OperationInfo>> stage_operations(TrainerOptions options,
                                                                  int rounds);

/// FLOP/s of LibTorch's product of two matrices of 512x512, on one thread: the best of 25.
double sgemm_flops();

/// `costs` by module. Where stages learn from heads of their own, all from the last but one layer
/// with weights on is put on that one, so that no cut parts it while there are modules enough: a
/// last stage of one layer learns no more than the head before it. As they are if the options' cut
/// parts them already.
std::vector<double> cuttable(const TrainerOptions& options, std::vector<double> costs);

/// What each module costs as a step program of its own, in ms.
std::vector<double> module_times_by_programs(TrainerOptions options, int threads = 1);

/// Chooses threads that were left open, the cut for stages of unequal threads if it was, and then
/// their cores, by the times that modules take as step programs. False if there was nothing to
/// weigh: then each stage whose threads were left open has one, and the cut is as it was.
bool balance_threads(TrainerOptions& options);

}  // namespace millrace::engine
