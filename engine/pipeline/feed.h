// Where the pipeline's samples come from and where its predictions go.
#pragma once

#include <cstdint>

#include "engine/monitor/clock.h"

namespace millrace::engine {

/// What is known of a sample besides its pixels.
struct SampleInfo {
  std::int64_t sample = -1;  ///< 0, 1, ... in order of admission
  std::int64_t frame = -1;   ///< the frame's number at its source
  Clock::time_point captured;
  bool learns = true;  ///< false: it is predicted, and nothing is learned from its loss
  /// False: nobody has said what its prediction should have been, so that its loss means nothing.
  bool has_target = true;
  /// It was learned from before: it counts apart, and its times say nothing of the stream.
  bool replayed = false;
  Clock::time_point predicted;  ///< when its prediction was there
};

/// Gives samples to stage 0, and their targets, which may come later, to whoever takes a loss.
/// poll(), take() and settle() are called by stage 0's worker; where it has several, by one at a
/// time, in the order of samples.
class Feed {
 public:
  enum class Status { ready, wait, end };
  virtual ~Feed() = default;

  /// Whether a sample can be taken. Blocks for at most about `patience` if not.
  virtual Status poll(std::chrono::microseconds patience) = 0;
  /// Writes the sample's input and target (if it has one) into `slot`. Only after poll() said
  /// ready.
  virtual void take(int slot, SampleInfo& info) = 0;

  // Of a feed whose targets come after their samples were taken (PipelineOptions::late_targets).

  /// Whether the target of the sample in `slot` has been written there; end: it never will. Blocks
  /// for at most about `patience` if neither. The worker of each stage that takes a loss.
  virtual Status target(int, std::chrono::microseconds) { return Status::ready; }
  /// Ready once that is known of every sample taken. Blocks as target() does.
  virtual Status settle(std::chrono::microseconds) { return Status::ready; }
  /// Samples taken with a target to come that never came. Any thread.
  virtual std::int64_t missed() const { return 0; }
};

/// Sees each prediction in the order of samples. Called by the last stage's worker (where it has
/// several, by one at a time), in the hot path: no allocation, lock or wait.
class Observer {
 public:
  virtual ~Observer() = default;
  /// As soon as it is made. Input and prediction are in `slot` until the call returns.
  virtual void shown(const SampleInfo&, int) {}
  /// When its target is there too, with the loss (NaN: it has no target); at once unless targets
  /// come late.
  virtual void predicted(const SampleInfo& info, int slot, float loss) = 0;
};

}  // namespace millrace::engine
