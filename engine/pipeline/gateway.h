#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/pipeline/shared.h"

namespace millrace::engine {

/// A worker's wait.
struct Wait {
  Clock::time_point since;  ///< when it began
  Clock::time_point due;    ///< the earliest end to expect, by earlier waits at the same action
};

/// Connects workers to the feed, the observer and other processes. Workers do not know where these
/// are: here, in this process, with all workers; see make_rank_gateway() for ranks that share a
/// pipeline. Samples are numbered from 0 in order of admission.
class Gateway {
 public:
  /// `shared` must outlive this.
  explicit Gateway(Shared& shared)
      : shared_(shared), before_(shared.pipeline.monitor.tally().counts()) {}
  virtual ~Gateway() = default;

  /// Whether the worker of that number runs in this process.
  virtual bool runs(int) const { return true; }
  /// Threads besides the workers, by name; they run until the stream ends.
  virtual std::vector<std::pair<std::string, std::function<void()>>> threads() { return {}; }
  /// How long a worker sleeps before it polls again. `own`: the sleep that suits its launches;
  /// kPatience if all finished. Called on the worker's thread.
  virtual std::chrono::microseconds patience(const Wait&, std::chrono::microseconds own) {
    return own;
  }
  /// Called by every worker while it waits. Any thread.
  virtual void progress() {}

  // Input side: called by the workers of stage 0, in sample order.

  /// Whether this process admits samples; if so, replicas of stage 0 take turns.
  virtual bool admits() const { return true; }
  /// Whether the slot is free or, if another process admits, filled. Waits at most `patience`.
  virtual bool acquire(std::int64_t sample, std::chrono::microseconds patience) {
    return shared_.pool.acquire(sample, patience);
  }
  /// Whether the feed has `sample`; end: the stream ends before it. Blocks for at most `patience`.
  virtual Feed::Status poll(std::int64_t sample, std::chrono::microseconds patience) {
    const bool whole = sample % shared_.choice == 0;  // ends between minibatches
    bool ends =
        whole && shared_.options.drain && shared_.options.drain->load(std::memory_order_relaxed);
    if (!ends && whole && full(/*targets_known=*/false)) {
      // An update that lacks a target makes room for another one.
      if (shared_.feed.targets_known(patience) != Feed::Status::ready) return Feed::Status::wait;
      ends = full(/*targets_known=*/true);
    }
    const Feed::Status status = ends ? Feed::Status::end : shared_.feed.poll(patience);
    if (status == Feed::Status::end) end_of_stream(sample);
    return status;
  }
  /// Fills the slot of `sample`, for which the worker has waited since `asked`.
  virtual void take(std::int64_t sample, Clock::time_point asked) {
    shared_.pipeline.monitor.admitted(asked, Clock::now());
    Sample& taken = shared_.in_flight(sample);
    Admission& admission = shared_.admission;
    if (sample >= shared_.schedule().slots()) settle(admission, taken, taken.info.has_target);
    SampleInfo& info = taken.info = {};
    shared_.feed.take(taken);
    const Pipeline& pipeline = shared_.pipeline;
    info.sample = pipeline.before + sample;
    if (info.index < 0) info.index = info.sample;
    info.fate = choose(sample) ? Fate::trained : Fate::predicted_only;
    if (!info.has_target) info.fate = Fate::without_target;
    if (pipeline.guard) pipeline.guard->scene.see(taken, info.has_target && !pipeline.late_targets);
    admission.admitted = sample + 1;
    if (info.replayed) ++admission.replays;
  }

  // Output side: called by the last stage's worker, in sample order.

  /// Whether the target of `sample` is in its slot. Not for late targets. Any worker.
  virtual bool has_target(std::int64_t) const { return true; }
  virtual void shown(std::int64_t sample) {
    Sample& ready = shared_.in_flight(sample);
    if (!ready.info.replayed)
      shared_.pipeline.monitor.predicted(ready.info.captured, ready.info.predicted);
    if (shared_.observer) shared_.observer->shown(ready);
  }
  virtual void predicted(std::int64_t sample, float loss) {
    if (shared_.observer) shared_.observer->predicted(shared_.in_flight(sample), loss);
  }
  /// Called when a stage has finished with `sample`. Any worker.
  virtual void release(std::int64_t sample) { shared_.pool.release(sample); }

  /// Before an update of `stage`: merges other processes' fates and alarms of its gradient.
  virtual void agree(int, Fate&, Alarm&) {}

  /// Reports that a worker here has failed.
  virtual void fail(const std::exception&) {}
  /// After the workers have ended: blocks until those of other processes have, and returns the
  /// fates of samples since construction. Throws if another process failed.
  virtual FateCounts finish() { return counts_since_construction(); }

 protected:
  FateCounts counts_since_construction() const {
    return shared_.pipeline.monitor.tally().counts() - before_;
  }
  virtual void end_of_stream(std::int64_t samples) {
    shared_.end.store(samples, std::memory_order_relaxed);
  }

  Shared& shared_;

 private:
  /// Counts the next sample. `has_target`: whether it has its target or may still get it.
  void settle(Admission& now, const Sample& sample, bool has_target) const {
    const Schedule& schedule = shared_.schedule();
    now.fresh += sample.info.replayed ? 0 : 1;
    now.whole = now.whole && has_target && sample.info.fate == Fate::trained;
    if (++now.settled % schedule.samples_an_update(schedule.stages - 1) != 0) return;
    now.learned += now.whole ? now.fresh : 0;
    now.fresh = 0;
    now.whole = true;
  }
  /// The limit on samples to train on is reached, if all targets come unless they are known.
  bool full(bool targets_known) const {
    const std::int64_t limit = shared_.options.limit;
    if (limit <= 0) return false;
    Admission now = shared_.admission;
    while (now.settled < now.admitted) {
      Sample& sample = shared_.in_flight(now.settled);
      settle(now, sample, !targets_known || !shared_.never_comes(sample));
    }
    return now.learned >= limit;
  }
  /// Whether to train on a fresh sample.
  bool choose(std::int64_t sample) {
    Admission& now = shared_.admission;
    if (sample % shared_.choice == 0) {
      const auto* const train_every = shared_.options.train_every;
      const std::int64_t every = train_every ? train_every->load(std::memory_order_relaxed) : 1;
      now.learns = sample == 0 || now.left_out_groups + 1 >= every;
      now.left_out_groups = now.learns ? 0 : now.left_out_groups + 1;
    }
    return now.learns;
  }

  const FateCounts before_;
};

/// The gateway of a pipeline over ranks. `shared` must outlive it.
std::unique_ptr<Gateway> make_rank_gateway(Shared& shared);

}  // namespace millrace::engine
