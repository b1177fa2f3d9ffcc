// PipeDream-2BW (Narayanan et al., arXiv 2006.09503): one forward, one backward, no flush, with
// gradients accumulated over a minibatch of at least N samples and two weight versions: W(t+1) =
// W(t) - lr * mean gradient of minibatch t at W(t-1). 2 stages, 2 samples per minibatch:
//
//   stage 0   F0^0 F1^0 .    B0 F2^0 B1 U F3^0 B2 F4^1 B3 U F5^1
//   stage 1   .    F0^0 B0 F1^0 B1 U F2^0 B2 F3^0 B3 U F4^1 B4
#include <algorithm>

#include "engine/schedule/registry.h"

namespace millrace::engine::schedules {
namespace {

Schedule pipedream_2bw_schedule(const ScheduleSpec& spec) {
  const int n = spec.stages, group = spec.microbatches;
  Schedule schedule{
      .stages = n, .in_flight = n + 1, .group = group, .versions = std::vector<int>(n, 2)};
  schedule.version_rule = [group](int, std::int64_t m) {
    return std::max<std::int64_t>(0, m / group - 1);
  };
  for (int stage = 0; stage < n; ++stage) {
    const std::int64_t warm_up = n - stage - 1;
    const auto forward = [&](std::int64_t m) {
      return Action{Op::forward, stage, m, m, schedule.version_rule(stage, m)};
    };
    const auto minibatch = [&](std::int64_t t, std::vector<Action>& list) {
      for (std::int64_t m = t * group; m < (t + 1) * group; ++m) {
        list.push_back(forward(m + warm_up));
        list.push_back({Op::backward, stage, m, m});
      }
      list.push_back({Op::update, stage, (t + 1) * group - 1, (t + 1) * group - 1});
    };
    Program program;
    for (std::int64_t m = 0; m < warm_up; ++m) program.prologue.push_back(forward(m));
    minibatch(0, program.prologue);  // versions do not advance yet in the first two minibatches
    minibatch(1, program.period);
    program.stride = group;
    schedule.workers.push_back(program);
  }
  return schedule;
}

}  // namespace

extern const ScheduleEntry pipedream_2bw{
    .name = "2bw",
    .summary = "pipedream over minibatches, with two versions of the weights",
    .generate = pipedream_2bw_schedule,
    .minibatches = true,
    .replicates = true,
    .fits_minibatch = true,
    .versions_kept = [](int) { return 2; },
    .samples_kept = [](int depth, int, int) { return depth; },
};

}  // namespace millrace::engine::schedules
