#pragma once

#include <concurrentqueue/blockingconcurrentqueue.h>  // LightweightSemaphore: spins before it sleeps

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "engine/pipeline/channels.h"
#include "engine/pipeline/pipeline.h"
#include "engine/schedule/launch_groups.h"

namespace millrace::engine {

class Gateway;

/// Slot sample % slots is free again once all `stages` have released the sample in it. One thread
/// at a time acquires; each stage releases a sample once.
class SlotPool {
 public:
  SlotPool(int slots, int stages) : slots_(slots), stages_(stages), state_(new State[slots]) {
    for (int slot = 0; slot < slots; ++slot) state_[slot].free.signal();
  }

  int slot_of(std::int64_t sample) const { return int(sample % slots_); }

  /// Waits for the sample's slot; false if it is not free within `patience`; 0: does not block.
  bool acquire(std::int64_t sample, std::chrono::microseconds patience) {
    State& state = state_[slot_of(sample)];
    const bool taken =
        patience.count() == 0 ? state.free.tryWait() : state.free.wait(patience.count());
    if (taken) state.holders.store(stages_, std::memory_order_relaxed);
    return taken;
  }
  void release(std::int64_t sample) {
    State& state = state_[slot_of(sample)];
    if (state.holders.fetch_sub(1, std::memory_order_acq_rel) == 1) state.free.signal();
  }

 private:
  struct alignas(64) State {
    std::atomic<int> holders{0};
    moodycamel::LightweightSemaphore free;
  };

  int slots_;
  int stages_;
  std::unique_ptr<State[]> state_;
};

/// Counts of admitted samples. Written by stage 0's workers in turn, read after the join.
struct Admission {
  std::int64_t admitted = 0;
  std::int64_t replays = 0;  ///< among the admitted
  std::int64_t settled = 0;  ///< the first of them, whose slots were used again
  std::int64_t learned = 0;  ///< of the settled without replays, in updates that are applied
  std::int64_t fresh = 0;    ///< of the settled without replays, in the current update
  bool whole = true;         ///< whether the current update may be applied
  std::int64_t left_out_groups = 0;  ///< since the last group that is trained on
  bool learns = true;                ///< whether the current group is trained on
};

/// A run's state, shared by its workers.
struct Shared {
  const Pipeline& pipeline;
  const PipelineOptions& options;
  Feed& feed;
  Observer* observer;
  std::vector<Sample*> samples;  ///< [slot]; stage 0 writes info before it sends
  LaunchGroups groups;
  SlotPool pool;
  std::int64_t choice;  ///< samples that are trained on together: a group
  Lowering lowering;
  Channels channels;
  Fates fates;
  Gateway* gateway = nullptr;
  Admission admission{};
  std::atomic<bool> stop{false};  ///< a worker failed: all waits end
  /// Samples admitted in all, once known; each is predicted, and trained on in a complete group.
  std::atomic<std::int64_t> end{kEndless};
  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();

  const Schedule& schedule() const { return pipeline.schedule; }
  bool takes_target(int stage) const {
    return lowering.last(stage) || pipeline.own_losses || lowering.supervised(stage);
  }
  /// Whether to stop waiting for `sample`: a worker failed, or the stream ended before it.
  bool over(std::int64_t sample) const {
    return stop.load(std::memory_order_relaxed) || sample >= end.load(std::memory_order_relaxed);
  }
  /// Whether to skip `action`. For samples after the last complete update, only forwards are run:
  /// which samples are predicted must not depend on when the end of the stream becomes known.
  bool over(const Action& action) const {
    const std::int64_t samples = end.load(std::memory_order_relaxed);
    const bool limited = samples != kEndless && action.op != Op::forward;
    return stop.load(std::memory_order_relaxed) ||
           action.sample >= (limited ? schedule().applied(samples) : samples);
  }
  /// Whether the late target of a sample in flight is known never to come.
  bool never_comes(Sample& sample) const {
    return pipeline.late_targets &&
           feed.target(sample, std::chrono::microseconds(0)) == Feed::Status::end;
  }
  Sample& in_flight(std::int64_t sample) { return *samples[std::size_t(pool.slot_of(sample))]; }
};

/// Runs worker `index`'s program, on its thread. Returns when the stream is over and the worker's
/// actions are done, or shared.stop is set.
void run_worker(Shared& shared, int index);

}  // namespace millrace::engine
