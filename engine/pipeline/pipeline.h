#pragma once

#include <concurrentqueue/blockingconcurrentqueue.h>  // LightweightSemaphore: spins before it sleeps

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "capture/step.h"
#include "engine/monitor/monitor.h"
#include "engine/pipeline/channels.h"
#include "engine/pipeline/feed.h"
#include "engine/pipeline/loss_guard.h"
#include "engine/schedule/launch_groups.h"
#include "engine/schedule/schedule.h"
#include "engine/trace/action_log.h"

namespace millrace::engine {

class Edge;
struct RankOptions;

struct PipelineOptions {
  /// Core for each worker, an index among those this process may use; -1 or missing: not pinned.
  std::vector<int> cores;
  /// Samples to learn from before admission stops, without replayed ones; 0: all that the feed has.
  std::int64_t limit = 0;
  /// Samples of earlier runs over the same stream: hooks, observer and guard count on from there.
  std::int64_t before = 0;
  /// Train on every k-th group of samples and only predict the others. A group is the smallest that
  /// whole updates allow. May change at any time. Null: 1.
  const std::atomic<std::int64_t>* train_every = nullptr;
  /// Once set, no further group is admitted, as if the feed had ended. Null: never.
  const std::atomic<bool>* drain = nullptr;
  /// Called by a stage's worker (of a replicated stage, the first) when the stage has finished all
  /// samples up to `sample`: nothing of the stage is in flight, except what a deferring step has
  /// queued. On the pipeline's critical path. May be empty.
  std::function<void(int stage, std::int64_t sample)> after_sample;
  /// Factor on the learning rate; may change at any time. Null: 1.
  const std::atomic<double>* rate = nullptr;
  /// Judges losses and has the stages roll back when the run diverges. May be null.
  LossGuard* guard = nullptr;
  /// Stages learn from their own losses, so a gradient is as old as its sample.
  bool own_losses = false;
  /// The feed writes targets after the samples, so stages take losses when they go backward. Not
  /// with replicas of a stage that takes one.
  bool late_targets = false;
  /// Where workers log their actions, with a track for each worker; may be null.
  ActionLog* actions = nullptr;
  /// The processes that share this run; null: only this one. Must outlive the run.
  const RankOptions* ranks = nullptr;
  /// Samples by slot, Schedule::slots() of them; must outlive the run. Empty: without tensors.
  std::vector<Sample*> samples;
  /// Called by a worker around each action, even one that is then skipped. For profilers and tests
  /// that disturb the timing. May be empty.
  std::function<void(int worker, const Action&)> before_action, after_action;
};

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

/// State shared by the workers.
struct Shared {
  const Schedule& schedule;
  std::vector<capture::Step*> steps;  ///< by Schedule::replica_id()
  LaunchGroups groups;
  Feed& feed;
  Observer* observer;
  Monitor& monitor;
  SlotPool pool;
  std::int64_t choice;           ///< samples that are learned from together: a group
  std::vector<Sample*> samples;  ///< by slot; stage 0 writes info before it sends
  Lowering lowering;
  Channels channels;
  Fates fates;
  std::vector<char>
      again;  ///< by sample, the latest: replayed(); written by stage 0 before it sends
  Edge* edge = nullptr;
  std::atomic<bool> stop{false};  ///< a worker failed: all waits end
  /// Samples admitted in all, once the stream's end is known. Every one is predicted, and learned
  /// from if its group is complete.
  std::atomic<std::int64_t> end{kEndless};
  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();
  // Written by stage 0's workers in turn, read after the join.
  std::int64_t admitted = 0;
  std::int64_t replays = 0;          ///< of the admitted
  std::int64_t left_out = 0;         ///< of the others, known not to be learned from
  std::int64_t left_out_groups = 0;  ///< since the last group that is learned from
  bool learns = true;                ///< the current group

  /// Whether to stop waiting for `sample`: a worker failed, or the stream ended before it.
  bool over(std::int64_t sample) const {
    return stop.load(std::memory_order_relaxed) || sample >= end.load(std::memory_order_relaxed);
  }
  /// The same for an action. Actions that no complete update needs are skipped, but not forwards:
  /// which samples are predicted must not depend on when the end of the stream becomes known.
  bool over(const Action& action) const {
    const std::int64_t samples = end.load(std::memory_order_relaxed);
    const bool limited = samples != kEndless && action.op != Op::forward;
    return stop.load(std::memory_order_relaxed) ||
           action.sample >= (limited ? schedule.applied(samples) : samples);
  }
  Sample& in_flight(std::int64_t sample) { return *samples[std::size_t(pool.slot_of(sample))]; }
  /// `sample`: one of the latest.
  bool replayed(std::int64_t sample) const { return again[std::size_t(sample) % again.size()]; }
};

/// admitted = trained + predicted_only + without_target + replayed + replay_skipped + rejected.
struct Outcome : FateCounts {
  std::int64_t admitted = 0;
  std::int64_t rejected = 0;  ///< of a trailing group that the stream did not fill

  Outcome& operator+=(const Outcome& more) {
    FateCounts::operator+=(more);
    admitted += more.admitted;
    rejected += more.rejected;
    return *this;
  }
};

/// Runs a schedule once, with a thread per worker; neighbours meet only at their link. Blocks until
/// the feed ends and every admitted sample has passed all stages. `steps`: by
/// Schedule::replica_id(); deferring ones have captured. `observer` may be null. Rethrows a
/// worker's first exception after all have stopped.
Outcome run_pipeline(const Schedule& schedule, std::vector<capture::Step*> steps, Feed& feed,
                     Observer* observer, Monitor& monitor, const PipelineOptions& options = {});

}  // namespace millrace::engine
