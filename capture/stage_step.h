// A stage's step over slots: what the engine calls, made of what the stage computes.
#pragma once

#include <memory>  // recordings
#include <vector>  // slots

#include "capture/buffers.h"
#include "capture/recorder.h"
#include "capture/step.h"
#include "stages/stage.h"

namespace millrace::capture {

/// Owns its stage; the buffers outlive it. Thread-bound, as Step; state() and prediction() may be
/// called when the workers are not running.
class StageStep final : public Step {
 public:
  /// `upstream` is null for the first stage, `downstream` for the last.
  StageStep(stages::Stage stage, c10::Device device, SampleBuffers& samples,
            BoundaryBuffers* upstream, BoundaryBuffers* downstream);

  void prepare() override;
  void forward(int slot, std::int64_t version) override;
  void backward(int slot, int gradient_slot) override;
  void update() override { update_->replay(); }
  float loss(int slot) const override;

  const stages::Stage& stage() const { return stage_; }
  /// The last stage's output for the sample in `slot`, [C,H,W] on the CPU.
  const float* prediction(int slot) const;

 private:
  void run_forward(int slot);  ///< at version_
  void run_backward(int slot, int gradient_slot);
  int slots() const { return int(samples_.input.size()); }

  stages::Stage stage_;
  std::int64_t version_ = stages::kNewest;  ///< what the forward under way runs at
  c10::Device device_;
  SampleBuffers& samples_;
  BoundaryBuffers* upstream_;
  BoundaryBuffers* downstream_;
  std::vector<stages::Activations> kept_;  ///< by slot
  mutable std::vector<at::Tensor>
      predictions_;                 ///< by slot, last stage; brought to the CPU when asked for
  std::vector<at::Tensor> losses_;  ///< by slot, last stage
  std::unique_ptr<Recorder> recorder_;
  std::vector<std::unique_ptr<Recording>> forward_;                ///< by slot
  std::vector<std::vector<std::unique_ptr<Recording>>> backward_;  ///< by slot, gradient slot
  std::unique_ptr<Recording> update_;
};

}  // namespace millrace::capture
