// PARTIME (Meloni et al., arXiv 2210.09147): at each step a stage forwards a new sample and
// backpropagates the gradient that downstream sent one step ago through this sample's activations.
// 3 stages; B4(2): "gradient of sample 2 through activations of sample 4":
//
//   step      0   1   2        3             4              5
//   stage 0   F0  F1  F2       F3            F4 B4(2) U     F5 B5(3) U
//   stage 1   .   F0  F1       F2 B2(0) U    F3 B3(1) U     F4 B4(2) U
//   stage 2   .   .   F0 B0 U  F1 B1 U       F2 B2 U        F3 B3 U
//
// Stage N-1-d gets its first gradient at sample 2d, and gradients there are 2d samples old. With
// deep supervision each goes back through its own sample, run again, as in pb: F4 L4 R0 B0 U.
#include "engine/schedule/generators/per_stage.h"

namespace millrace::engine::schedules {

extern const ScheduleEntry partime{
    .name = "partime",
    .summary = "one step a frame: gradients go back through the activations of the current frame",
    // N samples are at work; one more lets stage 0 start the next while the last stage finishes, so
    // neighbours never wait for a third stage. Stage 0 buffers its input for 2(N-1) samples.
    .generate =
        [](const ScheduleSpec& spec) {
          const bool own = spec.deep_supervision;  // a gradient meets its own sample
          return by_frames(spec.stages, own ? 2 * spec.stages : spec.stages + 1, own);
        },
    .deep_supervision = true,
};

}  // namespace millrace::engine::schedules
