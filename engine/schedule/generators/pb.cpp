// Pipelined backpropagation (Petrowski et al., 1993; Kosson et al., arXiv 2003.11666): as partime,
// but a gradient goes back through its own sample's saved activations, at the current weights. 3
// stages:
//
//   step      0   1   2       3            4            5
//   stage 0   F0  F1  F2      F3           F4 B0 U      F5 B1 U
//   stage 1   .   F0  F1      F2 B0 U      F3 B1 U      F4 B2 U
//   stage 2   .   .   F0 B0 U F1 B1 U      F2 B2 U      F3 B3 U
#include "engine/schedule/generators/per_stage.h"

namespace millrace::engine::schedules {

extern const ScheduleEntry pb{
    .name = "pb",
    .summary = "as partime, but a gradient goes back through its own frame's saved activations",
    // Stage 0 holds a sample from its forward to its backward, 2(N-1) samples later.
    .generate =
        [](const ScheduleSpec& spec) {
          return by_frames(spec.stages, 2 * spec.stages, /*own=*/true);
        },
    .deep_supervision = true,
    .recomputes = false,
    .samples_kept = [](int depth, int, int) { return 2 * depth - 1; },  // forwards run a tick ahead
};

}  // namespace millrace::engine::schedules
