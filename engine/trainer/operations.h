// The operations and the memory of steps, and choices by their times.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "capture/program/program.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

/// A sample as a stage gets it.
struct StageSample {
  stages::Tensors inputs;
  at::Tensor target{};  ///< undefined if the stage takes none
};
/// Runs each call of a sample's step, then the update with `count` gradients. `run`: runs a body.
void run_step(stages::Stage& stage, const StageSample& sample, std::int64_t count,
              const std::function<void(const std::function<void()>&)>& run);

/// Operators that a program leaves to LibTorch, counted above one: "aten::native_group_norm x20".
std::vector<std::string> left_to_libtorch(const std::vector<capture::OperationInfo>& operations);

/// The operations of each stage's step, in order, [stage]; without a cut, of the whole network as
/// one stage. Each is timed over `rounds` steps, on this thread and the stage's helpers, if any; on
/// the options' first GPU if there is one, else on a core. Replicas count as one.
std::vector<std::vector<capture::OperationInfo>> stage_operations(TrainerOptions options,
                                                                  int rounds);

/// Bytes of one worker of a stage.
struct StageMemory {
  std::int64_t weights = 0;      ///< the newest version
  std::int64_t stashes = 0;      ///< older versions
  std::int64_t optimizer = 0;    ///< the optimizer's state
  std::int64_t gradients = 0;    ///< sums, until the update
  std::int64_t activations = 0;  ///< peak, between forward and backward
  std::int64_t cuts = 0;         ///< activations and gradients that it leaves for its neighbours
  std::int64_t scratch = 0;      ///< shared by a step program's operations; 0 on a GPU
  std::int64_t samples = 0;      ///< inputs of the first stage, targets and predictions of the last
  std::int64_t total() const {
    return weights + stashes + optimizer + gradients + activations + cuts + scratch + samples;
  }
};

/// The cut into stages with the same number of modules, for where none is given yet.
inline std::vector<int> even_cut(int modules, int stages) {
  std::vector<int> cut;
  for (int stage = 1; stage < stages; ++stage) cut.push_back(stage * modules / stages);
  return cut;
}

struct PredictedStage {
  StageMemory memory;
  std::vector<capture::OperationInfo> operations;  ///< of its step program
};
/// The stages of a run on cores, found by recording one sample's step of each. Without a cut, all
/// stages have the same number of modules.
std::vector<PredictedStage> predict_stages(TrainerOptions options);
/// The operations of all stages.
std::vector<capture::OperationInfo> operations_of(const std::vector<PredictedStage>& stages);

/// FLOP/s of LibTorch's 512x512 matrix product on one thread: the best of 25.
double sgemm_flops();

/// `costs` by module. For stages with local heads, adds everything after the last layer but one
/// with weights to that layer, so that no cut separates them while there are modules enough: a last
/// stage of one layer learns no more than the head before it. Not if the options' cut does already.
std::vector<double> cuttable(const TrainerOptions& options, std::vector<double> costs);

/// Milliseconds of each module's own step program.
std::vector<double> module_times_by_programs(TrainerOptions options, int threads = 1);

/// Chooses unset threads, an unset cut for stages that run programs with unequal threads or
/// auxiliary heads, and then their cores, by the modules' times as step programs. False if there is
/// nothing to choose: then such stages have one thread, and the cut is unchanged.
/// `costs`: those measured already, in milliseconds by threads and module.
bool balance_threads(TrainerOptions& options, std::map<int, std::vector<double>> costs);

}  // namespace millrace::engine
