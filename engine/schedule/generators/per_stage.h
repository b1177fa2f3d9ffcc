// Schedules with one worker a stage.
#pragma once

#include "engine/schedule/registry.h"

namespace millrace::engine::schedules {

/// Every period is a minibatch of `group` samples: what `fill(stage, add)` adds, then the update.
template <class Fill>
Schedule by_minibatches(int stages, int in_flight, int group, const Fill& fill) {
  Schedule schedule{.stages = stages, .in_flight = in_flight, .group = group};
  for (int stage = 0; stage < stages; ++stage) {
    Program program{.stride = group};
    const auto add = [&](Op op, std::int64_t m) { program.period.push_back({op, stage, m, m}); };
    fill(stage, add);
    add(Op::update, group - 1);
    schedule.workers.push_back(std::move(program));
  }
  return schedule;
}

/// Every period is a frame, from the first gradient on: stage N-1-d forwards sample 2d, goes
/// backward, updates. `own`: back through the gradient's own sample; else through the one just
/// forwarded.
inline Schedule by_frames(int stages, int in_flight, bool own) {
  Schedule schedule{.stages = stages, .in_flight = in_flight};
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t d = stages - 1 - stage;
    Program program;
    for (std::int64_t sample = 0; sample < 2 * d; ++sample)
      program.prologue.push_back({Op::forward, stage, sample, sample});
    const std::int64_t back = own ? 0 : 2 * d, gradient = own || d == 0 ? back : back - 2;
    program.period = {{Op::forward, stage, 2 * d, 2 * d},
                      {Op::backward, stage, back, gradient},
                      {Op::update, stage, back, back}};
    schedule.workers.push_back(std::move(program));
  }
  return schedule;
}

}  // namespace millrace::engine::schedules
