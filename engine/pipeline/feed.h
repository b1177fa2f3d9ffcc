// Where the pipeline's samples come from and where its predictions go.
#pragma once

#include <cstdint>

#include "engine/pipeline/sample.h"

namespace millrace::engine {

/// Gives samples to stage 0, and targets to the stages that compute a loss. poll(), take() and
/// targets_known() are called by stage 0's worker; if that stage is replicated, by one replica at a time,
/// in sample order.
class Feed {
 public:
  enum class Status { ready, wait, end };
  virtual ~Feed() = default;

  /// Whether a sample can be taken. Blocks for about `patience` at most.
  virtual Status poll(std::chrono::microseconds patience) = 0;
  /// Fills `sample`: info, input and, unless targets come late, target. Only after poll() returned
  /// ready.
  virtual void take(Sample& sample) = 0;

  // Late targets (PipelineOptions::late_targets):

  /// ready: the target of `sample` has been written; end: it never will be. Blocks for about
  /// `patience` at most. Called by the worker of each stage that computes a loss.
  virtual Status target(Sample&, std::chrono::microseconds) { return Status::ready; }
  /// ready once target() would not say wait for any sample taken. Blocks as target() does.
  virtual Status targets_known(std::chrono::microseconds) { return Status::ready; }
  /// Samples taken whose target never came. Any thread.
  virtual std::int64_t missed() const { return 0; }
};

/// Sees each prediction in sample order. Called by the last stage's worker (if that stage is
/// replicated, by one replica at a time) in the hot path: no allocation, lock or wait.
class Observer {
 public:
  virtual ~Observer() = default;
  /// The prediction is ready.
  virtual void shown(Sample&) {}
  /// Its loss is known, too: at once, unless targets come late. NaN: there is no target.
  virtual void predicted(Sample& sample, float loss) = 0;
};

}  // namespace millrace::engine
