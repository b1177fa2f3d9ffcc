#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "capture/step.h"
#include "engine/monitor/monitor.h"
#include "engine/pipeline/feed.h"
#include "engine/pipeline/loss_guard.h"
#include "engine/schedule/schedule.h"
#include "engine/trace/action_log.h"

namespace millrace::engine {

struct RankOptions;

struct PipelineOptions {
  /// Samples to train on before admission stops, without replayed ones; 0: all that the feed has.
  std::int64_t limit = 0;
  /// Train on every k-th group of samples and only predict the others. A group is the smallest that
  /// whole updates allow. May change at any time. Null: 1.
  const std::atomic<std::int64_t>* train_every = nullptr;
  /// Once set, no further group is admitted, as if the feed had ended. Null: never.
  const std::atomic<bool>* drain = nullptr;
  /// Called by a stage's worker (of a replicated stage, the first) when the stage has finished all
  /// samples up to `sample`: nothing of the stage is in flight, except work that a deferring step
  /// has queued. On the pipeline's critical path. May be empty.
  std::function<void(int stage, std::int64_t sample)> after_sample{};
  /// Factor on the learning rate; may change at any time. Null: 1.
  const std::atomic<double>* rate = nullptr;
  /// Log of the workers' actions, with a track for each worker; may be null.
  ActionLog* actions = nullptr;
  /// Called by a worker around each action, even one that is then skipped, for profilers and tests
  /// that disturb the timing; may be empty.
  std::function<void(int worker, const Action&)> before_action{}, after_action{};
};

/// The parts of a pipeline. Everything that it refers to must outlive the run.
struct Pipeline {
  const Schedule& schedule;
  std::vector<capture::Step*> steps;  ///< [Schedule::replica_id()]; deferring steps have captured
  Monitor& monitor;
  /// [slot], Schedule::slots() of them; empty: no tensors
  std::vector<Sample*> samples{};
  /// [worker]: core, an index among those this process may use; -1 or missing: not pinned
  std::vector<int> cores{};
  /// Tokens that a link holds before its sender waits: TensorSets' of the schedule; 0: unbounded().
  std::size_t link_capacity = 0;
  /// Samples of earlier runs over the same stream: hooks, observer and guard count on from there.
  std::int64_t before = 0;
  /// Judges losses and makes the stages roll back when the run diverges; may be null.
  LossGuard* guard = nullptr;
  /// Stages learn from their own losses, so a gradient is as old as its sample.
  bool own_losses = false;
  /// The feed writes targets after the samples, so stages take losses when they go backward; not
  /// with replicas of a stage that takes one.
  bool late_targets = false;
  /// The processes that share this run; null: only this one.
  const RankOptions* ranks = nullptr;
};

/// admitted = fresh() + replayed + replay_skipped + rejected + replays in a trailing group.
struct Outcome : FateCounts {
  std::int64_t admitted = 0;
  std::int64_t rejected = 0;  ///< with a target, in a trailing group that the stream did not fill

  Outcome& operator+=(const Outcome& more) {
    FateCounts::operator+=(more);
    admitted += more.admitted;
    rejected += more.rejected;
    return *this;
  }
};

/// Runs a schedule once, with a thread per worker; neighbours meet only at their link. Blocks until
/// the feed ends and every admitted sample has passed all stages. `observer` may be null. Rethrows
/// a worker's first exception after all have stopped.
Outcome run_pipeline(const Pipeline& pipeline, Feed& feed, Observer* observer,
                     const PipelineOptions& options = {});

}  // namespace millrace::engine
