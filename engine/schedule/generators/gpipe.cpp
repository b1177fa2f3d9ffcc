// GPipe (Huang et al., arXiv 1811.06965): all forwards of a minibatch, all its backwards, one
// update; the pipeline runs empty in between. 3 stages, 3 samples per minibatch:
//
//   stage 0   F0 F1 F2 .  .  .  .  B0 B1 B2 U  F3
//   stage 1   .  F0 F1 F2 .  .  B0 B1 B2 U  .  .
//   stage 2   .  .  F0 F1 F2 B0 B1 B2 U  .  .  .
#include "engine/schedule/registry.h"

namespace millrace::engine::schedules {
namespace {

Schedule gpipe_schedule(const ScheduleSpec& spec) {
  const int group = spec.microbatches;
  Schedule schedule{.stages = spec.stages, .in_flight = group, .group = group};
  for (int stage = 0; stage < spec.stages; ++stage) {
    Program program;
    for (std::int64_t m = 0; m < group; ++m) program.period.push_back({Op::forward, stage, m, m});
    for (std::int64_t m = 0; m < group; ++m) program.period.push_back({Op::backward, stage, m, m});
    program.period.push_back({Op::update, stage, group - 1, group - 1});
    program.stride = group;
    schedule.workers.push_back(program);
  }
  return schedule;
}

}  // namespace

extern const ScheduleEntry gpipe{
    .name = "gpipe",
    .summary = "all forwards of a minibatch, all its backwards, one update; the pipeline drains",
    .generate = gpipe_schedule,
    .minibatches = true,
    .flushes = true,
    .replicates = true,
    .samples_kept = [](int, int, int microbatches) { return microbatches; },
};

}  // namespace millrace::engine::schedules
