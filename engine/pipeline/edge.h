// Where a pipeline meets what is outside: the feed, the observer, other processes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/pipeline/pipeline.h"

namespace millrace::engine {

/// How long one worker sleeps between two looks at what it waits for. Thread-bound.
class Patience {
 public:
  virtual ~Patience() = default;
  /// A wait begins, for a token that action `at` of the worker's program needs; -1: for anything
  /// else.
  virtual void begin(std::int64_t) {}
  /// The token of action `at` came after `waited`.
  virtual void came(std::int64_t, Clock::duration) {}
  /// The next sleep. `own`: what suits this worker's own launches; kPatience: all have finished.
  virtual std::chrono::microseconds next(std::chrono::microseconds own) { return own; }
};

/// What workers ask of the outside. They do not know whether feed and observer are in their own
/// process: LocalEdge answers in a process by itself, RankEdge where ranks share a pipeline. The
/// n-th sample that the pipeline admits has number n.
class Edge {
 public:
  virtual ~Edge() = default;

  /// Whether `worker` runs in this process.
  virtual bool runs(int) const { return true; }
  /// Threads beside the workers: their names, and what they do until the stream ends.
  virtual std::vector<std::pair<std::string, std::function<void()>>> threads() { return {}; }
  /// For a worker, called on its thread.
  virtual std::unique_ptr<Patience> patience(const Program&) { return std::make_unique<Patience>(); }
  /// Called by every worker between two looks at what it waits for. Any thread.
  virtual void progress() {}

  // Samples come in: called by the workers of stage 0, in sample order.

  /// Whether samples are admitted here, so that replicas of stage 0 take turns.
  virtual bool admits() const = 0;
  /// Whether the slot of `sample` is free, or, unless samples are admitted here, filled. Blocks for
  /// `patience` at most.
  virtual bool acquire(std::int64_t sample, std::chrono::microseconds patience) = 0;
  /// Whether the feed has `sample`; end: the stream ends before it. Blocks for `patience` at most.
  virtual Feed::Status poll(std::int64_t sample, std::chrono::microseconds patience) = 0;
  /// Fills the slot of `sample`, which the worker has waited for since `asked`.
  virtual void take(std::int64_t sample, Clock::time_point asked) = 0;

  // Predictions go out: called by the last stage's worker, in sample order.

  /// Whether the target of `sample` lies in its slot, unless it comes late. Any worker.
  virtual bool has_target(std::int64_t) const { return true; }
  virtual void shown(std::int64_t sample) = 0;
  virtual void predicted(std::int64_t sample, float loss) = 0;
  /// A stage has finished with `sample`. Any worker.
  virtual void release(std::int64_t sample) = 0;

  /// Before an update of `stage`: what other processes know of its gradient.
  virtual void agree(int, bool&, Alarm&) {}

  /// A worker here has failed.
  virtual void fail(const std::exception&) {}
  /// After the workers have ended: blocks until those of other processes have, and returns what
  /// became of samples since construction. Throws if another process failed.
  virtual FateCounts finish() = 0;
};

/// Feed and observer are in this process, and so are all workers.
class LocalEdge : public Edge {
 public:
  /// Both outlive this.
  LocalEdge(Shared& shared, const PipelineOptions& options)
      : shared_(shared), options_(options), before_(shared.monitor.tally().counts()) {}

  bool admits() const override { return true; }
  bool acquire(std::int64_t sample, std::chrono::microseconds patience) override {
    return shared_.pool.acquire(sample, patience);
  }
  Feed::Status poll(std::int64_t sample, std::chrono::microseconds patience) override;
  void take(std::int64_t sample, Clock::time_point asked) override;
  void shown(std::int64_t sample) override;
  void predicted(std::int64_t sample, float loss) override;
  void release(std::int64_t sample) override { shared_.pool.release(sample); }
  FateCounts finish() override { return counts_since_construction(); }

 protected:
  FateCounts counts_since_construction() const {
    return shared_.monitor.tally().counts() - before_;
  }
  /// The stream held `samples`.
  virtual void end_of_stream(std::int64_t samples);

  Shared& shared_;
  const PipelineOptions& options_;

 private:
  bool full() const;                        ///< as many samples are trained on as were asked for
  bool drained(std::int64_t sample) const;  ///< the caller wants no more
  bool choose(std::int64_t sample);         ///< whether a fresh sample is trained on

  const FateCounts before_;
};

}  // namespace millrace::engine
