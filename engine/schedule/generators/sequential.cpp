// Each sample through all stages and back before the next one starts: plain SGD. A stage's update
// overlaps upstream's backward.
//
//   stage 0   F0 .  .  .  B0 U  F1 .  .  .  B1 U
//   stage 1   .  F0 .  B0 U  .  .  F1 .  B1 U  .
//   stage 2   .  .  F0 B0 U  .  .  .  F1 B1 U  .
#include "engine/schedule/registry.h"

namespace millrace::engine::schedules {
namespace {

Schedule sequential_schedule(const ScheduleSpec& spec) {
  Schedule schedule{.stages = spec.stages, .in_flight = 2};
  for (int stage = 0; stage < spec.stages; ++stage) {
    Program program;
    program.period = {
        {Op::forward, stage, 0, 0}, {Op::backward, stage, 0, 0}, {Op::update, stage, 0, 0}};
    schedule.workers.push_back(program);
  }
  return schedule;
}

}  // namespace

extern const ScheduleEntry sequential{
    .name = "sequential",
    .summary = "each frame through all stages and back before the next one: plain training",
    .generate = sequential_schedule,
};

}  // namespace millrace::engine::schedules
