// What a schedule means: the same actions in one thread, without links, slots or queues.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

#include "engine/pipeline/loss_guard.h"
#include "engine/schedule/schedule.h"
#include "stages/stage.h"

namespace millrace::engine {

/// Input and target of sample n.
using SampleFunction = std::function<std::pair<at::Tensor, at::Tensor>(std::int64_t)>;

/// Whether sample n is learned from, and not predicted alone. An update is made of all the samples
/// that it covers, or not at all.
using LearnFunction = std::function<bool(std::int64_t)>;

/// Runs `schedule` over `samples` samples on `stages` (by Schedule::replica_id(), replicas tied by
/// Stage::replicate(); it trains their weights) and returns the loss of each sample's prediction.
/// `learns` empty: all are learned from. Any worker whose next action has what it needs goes on;
/// when none has, the schedule deadlocks: throws std::logic_error. `guard`, if any, judges losses
/// and has the stages roll back, as the pipeline does: with its verdict on sample n - guard_lag at
/// the gradient of sample n's loss. The pipelined run must leave the same
/// weights and losses, bit for bit. `Stage`: stages::Stage, or program::ProgramStage for a run
/// whose stages are step programs.
template <class Stage>
std::vector<float> run_oracle(const Schedule& schedule, std::vector<Stage>& stages,
                              const SampleFunction& sample, std::int64_t samples,
                              const LearnFunction& learns = {}, LossGuard* guard = nullptr,
                              std::int64_t guard_lag = 0);

}  // namespace millrace::engine
