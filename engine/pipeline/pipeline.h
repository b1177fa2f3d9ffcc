// Runs a schedule: one pinned worker thread each, neighbours meeting only at their link.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "capture/step.h"
#include "engine/monitor/monitor.h"
#include "engine/pipeline/channels.h"
#include "engine/pipeline/feed.h"
#include "engine/pipeline/loss_guard.h"
#include "engine/pipeline/scene_watch.h"
#include "engine/pipeline/slot_pool.h"
#include "engine/schedule/launch_groups.h"
#include "engine/schedule/schedule.h"
#include "engine/trace/action_log.h"

namespace millrace::engine {

class Edge;
struct RankOptions;

struct PipelineOptions {
  /// Core for each worker, an index among those this process may use; -1 or none: not pinned.
  std::vector<int> cores;
  /// Admit no more samples to learn from than this, replayed ones apart; 0: as many as the feed
  /// has.
  std::int64_t limit = 0;
  /// Samples of earlier runs over the same stream: hooks, observer and guard count on from there.
  std::int64_t before = 0;
  /// Train on every k-th group of samples; the others are only predicted. A group is as small as
  /// whole updates allow. May change at any time. Null: 1.
  const std::atomic<std::int64_t>* train_every = nullptr;
  /// Once it is set no further group is admitted, as if the feed had ended; null: never.
  const std::atomic<bool>* drain = nullptr;
  /// Called by a stage's worker (of a replicated stage, the first) when the stage has finished all
  /// samples up to `sample`: no action of the stage is under way but what a deferring step has yet
  /// to do. Whatever it costs is the pipeline's; empty otherwise.
  std::function<void(int stage, std::int64_t sample)> after_sample;
  /// What the learning rate is multiplied by; may change at any time. Null: 1.
  const std::atomic<double>* rate = nullptr;
  /// Judges losses, and has the stages roll back when the run goes astray; null: nobody does.
  LossGuard* guard = nullptr;
  /// What the guard's verdicts need of samples; null without a guard.
  SceneWatch* scene = nullptr;
  /// Whether stages learn from losses of their own, so that a gradient is as old as its sample.
  bool own_losses = false;
  /// Whether the feed writes targets after it gave the samples, so that stages take losses when
  /// they go backward. Not with replicas of a stage that takes one.
  bool late_targets = false;
  /// Where workers write what they did and when, for as many of them as there are; null: nowhere.
  ActionLog* actions = nullptr;
  /// The other processes that this run is spread over; null: none. Outlives the run.
  const RankOptions* ranks = nullptr;
  /// Where samples' numbers lie, by slot, Schedule::slots() of them; they outlive the run. Empty:
  /// samples have none.
  std::vector<Sample*> samples;
  /// Called by a worker around each action, also one that is then left out. For profilers, and
  /// tests that disturb the timing; empty otherwise.
  std::function<void(int worker, const Action&)> before_action, after_action;
};

/// Everything workers share. Owned by Pipeline.
struct Shared {
  const Schedule& schedule;
  std::vector<capture::Step*> steps;  ///< by Schedule::replica_id()
  LaunchGroups groups;
  Feed& feed;
  Observer* observer;
  Monitor& monitor;
  SlotPool pool;
  std::int64_t choice;           ///< samples that are learned from together
  std::vector<Sample*> samples;  ///< by slot; info is written by stage 0 before it sends
  Lowering lowering;
  Channels channels;
  Fates fates;
  std::vector<char>
      again;  ///< by sample, the latest: replayed(); written by stage 0 before it sends
  Edge* edge = nullptr;
  std::atomic<bool> stop{false};  ///< a worker failed: nobody waits any longer
  /// Samples admitted in all, once the stream's end is known: every one of them is predicted, and
  /// learned from if its group is complete.
  std::atomic<std::int64_t> end{kEndless};
  static constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();
  // Written by stage 0's workers in turn, read after the join.
  std::int64_t admitted = 0;
  std::int64_t replays = 0;          ///< of them
  std::int64_t left_out = 0;         ///< of the others: known not to be learned from
  std::int64_t left_out_groups = 0;  ///< since the last one that is
  bool learns = true;                ///< the group under way

  /// Whether to wait no longer for `sample`: a worker failed, or the stream ended before it.
  bool over(std::int64_t sample) const {
    return stop.load(std::memory_order_relaxed) || sample >= end.load(std::memory_order_relaxed);
  }
  /// The same for an action: those that no complete update needs are left out, but for forwards,
  /// so that which samples are predicted does not depend on when the stream's end is heard of.
  bool over(const Action& action) const {
    const std::int64_t samples = end.load(std::memory_order_relaxed);
    const bool limited = samples != kEndless && action.op != Op::forward;
    return stop.load(std::memory_order_relaxed) ||
           action.sample >= (limited ? schedule.applied(samples) : samples);
  }
  Sample& in_flight(std::int64_t sample) { return *samples[std::size_t(pool.slot_of(sample))]; }
  /// Of one of the latest samples.
  bool replayed(std::int64_t sample) const { return again[std::size_t(sample) % again.size()]; }
};

/// What run() did. admitted = trained + predicted_only + untold + replayed + replayed_in_vain +
/// rejected.
struct Outcome : FateCounts {
  std::int64_t admitted = 0;
  std::int64_t rejected = 0;  ///< of a trailing group that the stream could not fill

  Outcome& operator+=(const Outcome& more) {
    FateCounts::operator+=(more);
    admitted += more.admitted;
    rejected += more.rejected;
    return *this;
  }
};

/// One run of one schedule. The steps, feed, observer and monitor outlive it. Used by the thread
/// that owns it.
class Pipeline {
 public:
  /// `steps`: by Schedule::replica_id(); those that defer have recorded. `observer` may be null.
  Pipeline(const Schedule& schedule, std::vector<capture::Step*> steps, Feed& feed,
           Observer* observer, Monitor& monitor, PipelineOptions options = {});

  /// Starts the workers and blocks until the feed ends and every admitted sample has passed all
  /// stages. Rethrows the first exception of a worker, after all have stopped.
  Outcome run();
  ~Pipeline();

 private:
  std::vector<Sample*> samples();
  template <class Work>
  void noting_failure(const Work& work);  ///< the first one ends all
  [[noreturn]] void give_up();            ///< rethrows what failed, when all processes know

  Schedule schedule_;
  PipelineOptions options_;
  std::vector<std::unique_ptr<Sample>> empty_samples_;  ///< if the caller gives none
  Shared shared_;
  std::unique_ptr<Edge> edge_;
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

}  // namespace millrace::engine
