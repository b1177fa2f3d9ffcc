// Each sample through all stages and back before the next one starts: plain SGD.
//
//   stage 0   F0 .  .  .  B0 U  F1 .  .  .  B1 U
//   stage 1   .  F0 .  B0 U  .  .  F1 .  B1 U  .
//   stage 2   .  .  F0 B0 U  .  .  .  F1 B1 U  .     (a stage's update overlaps upstream's
//   backward)
#include "engine/schedule/generators/generators.h"

namespace millrace::engine::schedules {

Schedule sequential(const ScheduleOptions& options) {
  Schedule schedule{.stages = options.stages, .in_flight = 2};
  for (int stage = 0; stage < options.stages; ++stage) {
    Program program;
    program.period = {
        {Op::forward, stage, 0, 0}, {Op::backward, stage, 0, 0}, {Op::update, stage, 0, 0}};
    schedule.workers.push_back(program);
  }
  return schedule;
}

}  // namespace millrace::engine::schedules
