// Each sample through all stages and back before the next one starts: plain SGD. A stage's update
// overlaps upstream's backward.
//
//   stage 0   F0 .  .  .  B0 U  F1 .  .  .  B1 U
//   stage 1   .  F0 .  B0 U  .  .  F1 .  B1 U  .
//   stage 2   .  .  F0 B0 U  .  .  .  F1 B1 U  .
#include "engine/schedule/generators/per_stage.h"

namespace millrace::engine::schedules {

extern const ScheduleEntry sequential{
    .name = "sequential",
    .summary = "each frame through all stages and back before the next one: plain training",
    .generate =
        [](const ScheduleSpec& spec) {
          return by_minibatches(spec.stages, 2, 1, [](int, const auto& add) {
            add(Op::forward, 0);
            add(Op::backward, 0);
          });
        },
};

}  // namespace millrace::engine::schedules
