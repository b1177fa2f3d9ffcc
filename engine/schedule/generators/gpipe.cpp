// GPipe (Huang et al., arXiv 1811.06965): all forwards of a minibatch, all its backwards, one
// update; the pipeline runs empty in between. 3 stages, 3 samples per minibatch:
//
//   stage 0   F0 F1 F2 .  .  .  .  B0 B1 B2 U  F3
//   stage 1   .  F0 F1 F2 .  .  B0 B1 B2 U  .  .
//   stage 2   .  .  F0 F1 F2 B0 B1 B2 U  .  .  .
#include "engine/schedule/generators/per_stage.h"

namespace millrace::engine::schedules {

extern const ScheduleEntry gpipe{
    .name = "gpipe",
    .summary = "all forwards of a minibatch, all its backwards, one update; the pipeline drains",
    .generate =
        [](const ScheduleSpec& spec) {
          const int group = spec.microbatches;
          return by_minibatches(spec.stages, group, group, [&](int, const auto& add) {
            for (std::int64_t m = 0; m < group; ++m) add(Op::forward, m);
            for (std::int64_t m = 0; m < group; ++m) add(Op::backward, m);
          });
        },
    .minibatches = true,
    .flushes = true,
    .replicates = true,
    .samples_kept = [](int, int, int microbatches) { return microbatches; },
};

}  // namespace millrace::engine::schedules
