// 1F1B with flush (PipeDream-Flush, arXiv 2006.09503; Megatron-LM, arXiv 2104.04473): as gpipe, but
// a stage goes backward as soon as it can, so it keeps at most N samples' activations. 3 stages, 4
// samples per minibatch:
//
//   stage 0   F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3 U
//   stage 1   .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 U
//   stage 2   .  .  F0 B0 F1 B1 F2 B2 F3 B3 U
#include <algorithm>

#include "engine/schedule/registry.h"

namespace millrace::engine::schedules {
namespace {

Schedule one_forward_one_backward_schedule(const ScheduleSpec& spec) {
  const int group = spec.microbatches;
  Schedule schedule{
      .stages = spec.stages, .in_flight = std::min(group, spec.stages), .group = group};
  for (int stage = 0; stage < spec.stages; ++stage) {
    const int warm_up = std::min(group, spec.stages - stage - 1);
    Program program;
    for (std::int64_t m = 0; m < warm_up; ++m) program.period.push_back({Op::forward, stage, m, m});
    for (std::int64_t m = 0; m < group; ++m) {
      if (m + warm_up < group)
        program.period.push_back({Op::forward, stage, m + warm_up, m + warm_up});
      program.period.push_back({Op::backward, stage, m, m});
    }
    program.period.push_back({Op::update, stage, group - 1, group - 1});
    program.stride = group;
    schedule.workers.push_back(program);
  }
  return schedule;
}

}  // namespace

extern const ScheduleEntry one_forward_one_backward{
    .name = "1f1b",
    .summary = "as gpipe, but backward as soon as possible: at most N samples' activations",
    .generate = one_forward_one_backward_schedule,
    .minibatches = true,
    .flushes = true,
    .replicates = true,
    .samples_kept = [](int depth, int, int microbatches) { return std::min(microbatches, depth); },
};

}  // namespace millrace::engine::schedules
