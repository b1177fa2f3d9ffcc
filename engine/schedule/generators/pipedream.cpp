// PipeDream (Narayanan et al., SOSP 2019): one forward, one backward, no flush. A sample goes back
// at the weights of its forward, which are stashed; its update is applied to the newest. 3 stages
// (Fm^v: at version v, that is after v updates):
//
//   stage 0   F0^0 F1^0 F2^0 .    .    B0 U F3^1 B1 U F4^2 B2 U F5^3
//   stage 1   .    F0^0 F1^0 .    B0 U F2^1 B1 U F3^2 B2 U F4^3
//   stage 2   .    .    F0^0 B0 U F1^1 B1 U F2^2 B2 U F3^3
//
// Stage i runs sample m at version max(0, m-(N-i)+1); vertical_sync: at stage 0's, max(0, m-N+1).
//
// A stage may be replicated (1F1B-RR): its replicas take turns with samples and apply the mean of
// their gradients together, so an update covers one sample of each. Stage 0 with 2 replicas, one
// stage 1:
//
//   stage 0, replica 0   F0^0 F2^0 .  B0 U F4^1 .  B2 U F6^2
//   stage 0, replica 1   F1^0 .    .  .  . B1 U F3^1 .  .  . B3 U
//   stage 1              .    F0^0 B0 U F1^1 B1 U F2^2 B2 U F3^3 B3 U
//
// A replica has ceil(workers of its and later stages / its stage's replicas) samples in flight.
#include <algorithm>
#include <stdexcept>

#include "engine/schedule/registry.h"

namespace millrace::engine::schedules {
namespace {

std::vector<int> replicas_of(const ScheduleSpec& spec) {
  if (spec.replicas.empty()) return std::vector<int>(spec.stages, 1);
  if (int(spec.replicas.size()) != spec.stages) {
    throw std::invalid_argument("replicas must be one number a stage (" +
                                std::to_string(spec.stages) + ")");
  }
  for (const int count : spec.replicas) {
    if (count < 1) throw std::invalid_argument("a stage needs at least 1 replica");
    if (count > 1 && spec.vertical_sync) {
      throw std::invalid_argument(
          "vertical_sync has no meaning for replicated stages, whose versions count differently");
    }
  }
  return spec.replicas;
}

Schedule pipedream_schedule(const ScheduleSpec& spec) {
  const int n = spec.stages;
  const std::vector<int> replicas = replicas_of(spec);
  const bool replicated =
      std::any_of(replicas.begin(), replicas.end(), [](int r) { return r > 1; });
  // A worker's forwards before its first backward, for each stage.
  std::vector<std::int64_t> warm_up(n);
  int later = 0;  // workers of later stages
  for (int stage = n - 1; stage >= 0; --stage) {
    warm_up[stage] = (later + replicas[stage] + replicas[stage] - 1) / replicas[stage] - 1;
    later += replicas[stage];
  }
  Schedule schedule{.stages = n, .in_flight = int(replicas[0] * (warm_up[0] + 1)) + replicas[0]};
  if (replicated) schedule.replicas = replicas;
  const auto behind = [=, sync = spec.vertical_sync](int stage) {
    return sync ? n - 1 : warm_up[stage];
  };
  schedule.version_rule = [replicas, behind](int stage, std::int64_t sample) {
    return std::max<std::int64_t>(0, sample / replicas[stage] - behind(stage));
  };
  for (int stage = 0; stage < n; ++stage) {
    const int count = replicas[stage];
    schedule.versions.push_back(int(behind(stage)) + 1);
    for (int replica = 0; replica < count; ++replica) {
      const auto forward = [&](std::int64_t round) {
        const std::int64_t m = round * count + replica;
        return Action{Op::forward, stage, m, m, schedule.version_rule(stage, m)};
      };
      const auto one_each = [&](std::int64_t round, std::vector<Action>& list) {
        const std::int64_t m = round * count + replica, covered = (round + 1) * count - 1;
        list.insert(list.end(), {forward(round + warm_up[stage]),
                                 {Op::backward, stage, m, m},
                                 {Op::update, stage, covered, covered}});
      };
      Program program{.replica = replica};
      for (std::int64_t round = 0; round < warm_up[stage]; ++round)
        program.prologue.push_back(forward(round));
      // Versions advance with samples only from round behind() on; earlier rounds are prologue.
      std::int64_t round = 0;
      for (; round + warm_up[stage] < behind(stage); ++round) one_each(round, program.prologue);
      one_each(round, program.period);
      program.stride = count;
      schedule.workers.push_back(program);
    }
  }
  return schedule;
}

}  // namespace

extern const ScheduleEntry pipedream{
    .name = "pipedream",
    .summary =
        "one forward, one backward, no flush; each backward uses the stashed weights of its own "
        "forward",
    .generate = pipedream_schedule,
    .vertical_sync = true,
    .replicas = true,
    .replicates = true,
    .versions_kept = [](int depth) { return depth; },  // SOSP 2019, section 3.3
    .samples_kept = [](int depth, int, int) { return depth; },
};

}  // namespace millrace::engine::schedules
