// GPipe (Huang et al., arXiv 1811.06965): all forwards of a minibatch, all backwards, one update;
// the pipeline runs empty in between. With 3 stages, 3 samples a minibatch:
//
//   stage 0   F0 F1 F2 .  .  .  .  B0 B1 B2 U  F3
//   stage 1   .  F0 F1 F2 .  .  B0 B1 B2 U  .  .
//   stage 2   .  .  F0 F1 F2 B0 B1 B2 U  .  .  .
#include "engine/schedule/generators/generators.h"

namespace millrace::engine::schedules {

Schedule gpipe(const ScheduleOptions& options) {
  const int group = options.microbatches;
  Schedule schedule{.stages = options.stages, .in_flight = group, .group = group};
  for (int stage = 0; stage < options.stages; ++stage) {
    Program program;
    for (std::int64_t m = 0; m < group; ++m) program.period.push_back({Op::forward, stage, m, m});
    for (std::int64_t m = 0; m < group; ++m) program.period.push_back({Op::backward, stage, m, m});
    program.period.push_back({Op::update, stage, group - 1, group - 1});
    program.stride = group;
    schedule.workers.push_back(program);
  }
  return schedule;
}

}  // namespace millrace::engine::schedules
