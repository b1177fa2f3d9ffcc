#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

#include "engine/pipeline/loss_guard.h"
#include "engine/schedule/schedule.h"
#include "stages/stage.h"

namespace millrace::engine {

using SampleFunction = std::function<std::pair<at::Tensor, at::Tensor>(std::int64_t)>;

/// Whether sample n is trained on. An update applies all samples that it covers, or none.
using LearnFunction = std::function<bool(std::int64_t)>;

/// Runs `body`, a call of a stage.
using CallFunction = std::function<void(stages::Stage& stage, const std::function<void()>& body)>;

/// Runs a schedule in one thread, without links, slots or queues, which defines its meaning. The
/// pipelined run must leave the same weights and losses, bit for bit. Runs `samples` samples on
/// `stages` (by Schedule::replica_id(), replicas tied by Stage::replicate()), trains their weights
/// and returns the loss of each prediction. `learns` empty: all samples are trained on. `guard`, if
/// any, judges losses and makes the stages roll back as the pipeline does: with its verdict on
/// sample n - guard_lag at the gradient of sample n's loss. `call` empty: by LibTorch's operators.
/// Throws std::logic_error if the schedule deadlocks.
std::vector<float> run_oracle(const Schedule& schedule, std::vector<stages::Stage>& stages,
                              const SampleFunction& sample, std::int64_t samples,
                              const LearnFunction& learns = {}, LossGuard* guard = nullptr,
                              std::int64_t guard_lag = 0, const CallFunction& call = {});

}  // namespace millrace::engine
