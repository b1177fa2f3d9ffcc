// PipeDream (Narayanan et al., SOSP 2019): one forward, one backward, without a flush. A sample
// goes back at the very weights it went forward at, which are stashed; its update lands on the
// newest. With 3 stages (Fm^v: at the version that v updates made):
//
//   stage 0   F0^0 F1^0 F2^0 .    .    B0 U F3^1 B1 U F4^2 B2 U F5^3
//   stage 1   .    F0^0 F1^0 .    B0 U F2^1 B1 U F3^2 B2 U F4^3
//   stage 2   .    .    F0^0 B0 U F1^1 B1 U F2^2 B2 U F3^3
//
// Stage i runs sample m at version max(0, m-(N-i)+1), with vertical_sync at max(0, m-N+1), the
// version that stage 0 used.
#include <algorithm>  // max

#include "engine/schedules/generators.h"

namespace millrace::engine::schedules {

Schedule pipedream(const ScheduleOptions& options) {
  const int n = options.stages;
  Schedule schedule{.stages = n, .in_flight = n + 1};
  schedule.version_rule = [n, sync = options.vertical_sync](int stage, std::int64_t m) {
    return std::max<std::int64_t>(0, m - (sync ? n : n - stage) + 1);
  };
  for (int stage = 0; stage < n; ++stage) {
    const std::int64_t warm_up = n - stage - 1;
    const std::int64_t behind = options.vertical_sync ? n - 1 : warm_up;
    const auto forward = [&](std::int64_t m) {
      return Action{Op::forward, stage, m, m, schedule.version_rule(stage, m)};
    };
    Program program;
    for (std::int64_t m = 0; m < warm_up; ++m) program.prologue.push_back(forward(m));
    // Versions rise with the samples only from sample `behind` on; rounds before that are written
    // out.
    std::int64_t round = 0;
    for (; round + warm_up < behind; ++round) {
      program.prologue.insert(program.prologue.end(), {forward(round + warm_up),
                                                       {Op::backward, stage, round, round},
                                                       {Op::update, stage, round, round}});
    }
    program.period = {forward(round + warm_up),
                      {Op::backward, stage, round, round},
                      {Op::update, stage, round, round}};
    schedule.workers.push_back(program);
    schedule.versions.push_back(options.vertical_sync ? n : n - stage);
  }
  return schedule;
}

}  // namespace millrace::engine::schedules
