// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473): p workers with v stages each; worker r has
// stages r, r+p, r+2p, ... Samples go round in groups of p, so the pipeline fills v times faster
// and its bubble is (p-1)/(v m). 2 workers, 2 stages each, 2 samples per minibatch ("2F1": stage 2
// forwards sample 1):
//
//   worker 0   0F0 0F1 2F0 2F1 .   2B0 .   2B1 0B0 0B1 U
//   worker 1   .   1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1 U
#include <algorithm>
#include <stdexcept>

#include "engine/schedule/registry.h"

namespace millrace::engine::schedules {
namespace {

struct Order {
  int workers, chunks;
  /// Chunk (from the last one for backwards) and sample of a minibatch's k-th forward or backward.
  int chunk(int k) const { return k / workers % chunks; }
  std::int64_t sample(int k) const {
    return std::int64_t(k / (workers * chunks)) * workers + k % workers;
  }
};

Program program_of(int worker, const Order& order, int group) {
  const int total = group * order.chunks;
  const int warm_up =
      std::min(total, (order.chunks - 1) * order.workers + 2 * (order.workers - worker - 1));
  const auto action = [&](Op op, int k) {
    const int chunk = op == Op::forward ? order.chunk(k) : order.chunks - 1 - order.chunk(k);
    return Action{op, chunk * order.workers + worker, order.sample(k), order.sample(k)};
  };
  Program program;
  for (int k = 0; k < warm_up; ++k) program.period.push_back(action(Op::forward, k));
  for (int k = 0; k < total; ++k) {
    if (k + warm_up < total) program.period.push_back(action(Op::forward, k + warm_up));
    program.period.push_back(action(Op::backward, k));
  }
  for (int chunk = order.chunks - 1; chunk >= 0; --chunk) {
    program.period.push_back({Op::update, chunk * order.workers + worker, group - 1, group - 1});
  }
  program.stride = group;
  return program;
}

Schedule interleaved_schedule(const ScheduleSpec& spec) {
  const int n = spec.stages, v = spec.virtual_stages, group = spec.microbatches;
  if (n % v != 0) {
    throw std::invalid_argument("interleaved needs stages (" + std::to_string(n) +
                                ") in multiples of virtual_stages (" + std::to_string(v) + ")");
  }
  const Order order{n / v, v};
  if (group % order.workers != 0) {
    throw std::invalid_argument("interleaved needs microbatches (" + std::to_string(group) +
                                ") in multiples of its workers (" + std::to_string(order.workers) +
                                ")");
  }
  Schedule schedule{.stages = n, .in_flight = group, .group = group};
  for (int worker = 0; worker < order.workers; ++worker)
    schedule.workers.push_back(program_of(worker, order, group));
  return schedule;
}

}  // namespace

extern const ScheduleEntry interleaved{
    .name = "interleaved",
    .summary = "1f1b where each worker has several stages, which makes the bubble smaller",
    .generate = interleaved_schedule,
    .minibatches = true,
    .virtual_stages = true,
    .flushes = true,
};

}  // namespace millrace::engine::schedules
