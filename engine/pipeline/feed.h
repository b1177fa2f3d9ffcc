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
};

/// Gives samples to stage 0. Every call is made by stage 0's worker; where it has several, by one
/// at a time, in the order of samples.
class Feed {
 public:
  enum class Status { ready, wait, end };
  virtual ~Feed() = default;

  /// Whether a sample can be taken. Blocks for at most about `patience` if not.
  virtual Status poll(std::chrono::microseconds patience) = 0;
  /// Writes the sample's input and target (if it has one) into `slot`. Only after poll() said ready.
  virtual void take(int slot, SampleInfo& info) = 0;
};

/// Sees each prediction as it is made, in the order of samples. Called by the last stage's worker
/// (where it has several, by one at a time), in the hot path: no allocation, lock or wait.
/// Prediction and target are in `slot` until the call returns.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void predicted(const SampleInfo& info, int slot, float loss) = 0;
};

}  // namespace millrace::engine
