// ZB-H1 (Qi et al., arXiv 2401.10241): 1f1b with flush, where a backward is split into the input's
// gradient (I) and the weights' (W). Upstream waits only for I, and W fills the bubble: stage i
// does a W when it has i more I than W, so no stage keeps more than N samples. 3 stages, 4 samples
// per minibatch:
//
//   stage 0   F0 F1 F2 .  .  I0 W0 F3 I1 W1 .  I2 W2 I3 W3 U
//   stage 1   .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 I3 W2 W3 U
//   stage 2   .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3 U
//
// If F, I and W take one tick each, N-1 ticks of 3 m + N-1 are idle, a third of 1f1b's 3 (N-1).
#include <algorithm>

#include "engine/schedule/generators/per_stage.h"

namespace millrace::engine::schedules {

extern const ScheduleEntry zb_h1{
    .name = "zb-h1",
    .summary = "1f1b with the weights' gradients deferred to fill the bubble",
    .generate =
        [](const ScheduleSpec& spec) {
          const int n = spec.stages, group = spec.microbatches;
          return by_minibatches(n, std::min(group, 2 * n), group, [&](int stage, const auto& add) {
            const int warm_up = std::min(group, n - stage - 1);
            for (std::int64_t m = 0; m < warm_up; ++m) add(Op::forward, m);
            for (std::int64_t m = 0; m < group; ++m) {
              if (m + warm_up < group) add(Op::forward, m + warm_up);
              add(Op::backward_input, m);
              if (m >= stage) add(Op::backward_weight, m - stage);
            }
            for (std::int64_t m = std::max(0, group - stage); m < group; ++m)
              add(Op::backward_weight, m);
          });
        },
    .minibatches = true,
    .flushes = true,
    .samples_kept = [](int, int stages,
                       int microbatches) { return std::min(microbatches, stages); },
    .recomputed_kept = [](int depth, int stages,
                          int microbatches) { return std::min(microbatches, stages - depth + 1); },
};

}  // namespace millrace::engine::schedules
