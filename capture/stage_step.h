// A stage's step over slots: what the engine calls, made of what the stage computes.
#pragma once

#include <memory>    // recordings
#include <optional>  // bytes not measured yet
#include <vector>    // slots

#include "capture/buffers.h"
#include "capture/recorder.h"
#include "capture/step.h"
#include "stages/stage.h"

namespace millrace::capture {

/// Owns its stage; the buffers outlive it. Thread-bound, as Step; stage() and counts may be read
/// when the workers are not running.
class StageStep final : public Step {
 public:
  /// `upstream` is null for the first stage, `downstream` for the last.
  StageStep(stages::Stage stage, c10::Device device, SampleBuffers& samples,
            BoundaryBuffers* upstream, BoundaryBuffers* downstream);

  void prepare() override;
  void forward(int slot, std::int64_t version) override;
  void discard(int slot) override;
  void recompute(int slot) override { recompute_[slot]->replay(); }
  void backward(int slot, int gradient_slot) override;
  void backward_input(int slot, int gradient_slot) override;
  void backward_weight(int slot) override { backward_weight_[slot]->replay(); }
  bool update() override;
  void skip_update() override { stage_.skip_update(); }
  void take_snapshot() override { stage_.take_snapshot(); }
  void roll_back(double factor) override { stage_.roll_back(factor); }
  void set_rate(double factor) override { stage_.set_rate(factor); }
  float loss(int slot) const override;

  const stages::Stage& stage() const { return stage_; }
  stages::Stage& stage() { return stage_; }
  /// Bytes of activations kept at the worst moment so far, beyond what upstream gave: what lies
  /// between forward and backward, of all samples. Read when the workers are not running.
  std::int64_t peak_activation_bytes() const { return peak_bytes_; }

 private:
  void run_forward(int slot);  ///< at version_
  void run_recompute(int slot);
  void run_backward(stages::Tensors (stages::Stage::*part)(stages::Activations&,
                                                           const stages::Tensors&),
                    int slot, int gradient_slot);
  void run_backward_weight(int slot);
  int slots() const { return int(samples_.input.size()); }
  /// Counts `slot`'s sample as keeping `bytes`.
  void keeps(int slot, std::int64_t bytes);

  stages::Stage stage_;
  std::int64_t version_ = stages::kNewest;  ///< what the forward under way runs at
  c10::Device device_;
  SampleBuffers& samples_;
  BoundaryBuffers* upstream_;
  BoundaryBuffers* downstream_;
  std::vector<stages::Activations> kept_;  ///< by slot
  std::vector<std::int64_t> bytes_;        ///< by slot: what kept_ keeps
  std::int64_t all_bytes_ = 0, peak_bytes_ = 0;
  /// What each leaves allocated for a sample; empty: not measured yet.
  std::optional<std::int64_t> forward_bytes_, recompute_bytes_, input_gradient_bytes_;
  std::vector<at::Tensor> losses_;  ///< by slot, last stage
  std::unique_ptr<Recorder> recorder_;
  using Recordings = std::vector<std::unique_ptr<Recording>>;
  Recordings forward_, recompute_, backward_weight_;   ///< by slot
  std::vector<Recordings> backward_, backward_input_;  ///< by slot, gradient slot
  std::unique_ptr<Recording> update_;
  bool updated_ = true;  ///< whether the last update was applied
};

}  // namespace millrace::capture
