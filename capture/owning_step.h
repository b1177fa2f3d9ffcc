// A step that owns its stage: what the trainer holds, however the step runs.
#pragma once

#include "capture/buffers.h"
#include "capture/step.h"
#include "stages/stage.h"

namespace millrace::capture {

/// Owns its stage; the buffers outlive it. Thread-bound, as Step; stage() and counts may be read
/// when the workers are not running.
class OwningStep : public Step {
 public:
  /// `upstream` is null for the first stage, `downstream` for the last.
  OwningStep(stages::Stage stage, c10::Device device, SampleBuffers& samples,
             BoundaryBuffers* upstream, BoundaryBuffers* downstream)
      : stage_(std::move(stage)),
        device_(device),
        samples_(samples),
        upstream_(upstream),
        downstream_(downstream) {}

  const stages::Stage& stage() const { return stage_; }
  stages::Stage& stage() { return stage_; }
  /// Bytes of activations kept at the worst moment so far, beyond what upstream gave: what lies
  /// between forward and backward, of all samples. Read when the workers are not running.
  virtual std::int64_t peak_activation_bytes() const = 0;

 protected:
  int slots() const { return int(samples_.input.size()); }
  /// Whether a forward takes a loss.
  bool compares() const { return !downstream_ || stage_.greedy(); }
  /// Whether the target is what the stage has already.
  bool target_is_its_input() const { return !upstream_ && samples_.target_is_input(); }

  stages::Stage stage_;
  c10::Device device_;
  SampleBuffers& samples_;
  BoundaryBuffers* upstream_;
  BoundaryBuffers* downstream_;
};

}  // namespace millrace::capture
