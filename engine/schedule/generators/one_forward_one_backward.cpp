// 1F1B with flush (PipeDream-Flush, arXiv 2006.09503; Megatron-LM, arXiv 2104.04473): as gpipe, but
// a stage goes backward as soon as it can, so it keeps at most N samples' activations. 3 stages, 4
// samples per minibatch:
//
//   stage 0   F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3 U
//   stage 1   .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 U
//   stage 2   .  .  F0 B0 F1 B1 F2 B2 F3 B3 U
#include <algorithm>

#include "engine/schedule/generators/per_stage.h"

namespace millrace::engine::schedules {

extern const ScheduleEntry one_forward_one_backward{
    .name = "1f1b",
    .summary = "as gpipe, but backward as soon as possible: at most N samples' activations",
    .generate =
        [](const ScheduleSpec& spec) {
          const int n = spec.stages, group = spec.microbatches;
          return by_minibatches(n, std::min(group, n), group, [&](int stage, const auto& add) {
            const int warm_up = std::min(group, n - stage - 1);
            for (std::int64_t m = 0; m < warm_up; ++m) add(Op::forward, m);
            for (std::int64_t m = 0; m < group; ++m) {
              if (m + warm_up < group) add(Op::forward, m + warm_up);
              add(Op::backward, m);
            }
          });
        },
    .minibatches = true,
    .flushes = true,
    .replicates = true,
    .samples_kept = [](int depth, int, int microbatches) { return std::min(microbatches, depth); },
};

}  // namespace millrace::engine::schedules
