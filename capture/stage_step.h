// A stage's step run as it is called: each call's work is done when it returns.
#pragma once

#include <memory>    // recordings
#include <optional>  // bytes not measured yet
#include <vector>    // slots

#include "capture/owning_step.h"

namespace millrace::capture {

/// On a CPU core or, uncaptured, on a CUDA device.
class StageStep final : public OwningStep {
 public:
  StageStep(stages::Stage stage, c10::Device device, SampleBuffers& samples,
            BoundaryBuffers* upstream, BoundaryBuffers* downstream);

  void prepare() override;
  void forward(int slot, std::int64_t version) override;
  void discard(int slot) override;
  void recompute(int slot) override;
  void backward(int slot, int gradient_slot) override;
  void backward_input(int slot, int gradient_slot) override;
  void backward_weight(int slot) override;
  void update() override;
  void skip_update() override { stage_.skip_update(); }
  void take_snapshot() override { stage_.take_snapshot(); }
  void roll_back(double factor) override { stage_.roll_back(factor); }
  void set_rate(double factor) override { stage_.set_rate(factor); }
  float loss(int slot) const override;
  std::int64_t skipped() const override { return skipped_; }
  std::int64_t peak_activation_bytes() const override { return peak_bytes_; }

 private:
  void run_forward(int slot);  ///< at version_
  void run_recompute(int slot);
  void run_backward(stages::Tensors (stages::Stage::*part)(stages::Activations&,
                                                           const stages::Tensors&),
                    int slot, int gradient_slot);
  void run_backward_weight(int slot);
  /// Counts `slot`'s sample as keeping `bytes`.
  void keeps(int slot, std::int64_t bytes);

  std::int64_t version_ = stages::kNewest;  ///< what the forward under way runs at
  std::vector<stages::Activations> kept_;   ///< by slot
  std::vector<std::int64_t> bytes_;         ///< by slot: what kept_ keeps
  std::int64_t all_bytes_ = 0, peak_bytes_ = 0;
  /// What each leaves allocated for a sample; empty: not measured yet.
  std::optional<std::int64_t> forward_bytes_, recompute_bytes_, input_gradient_bytes_;
  std::vector<at::Tensor> losses_;  ///< by slot, last stage
  std::unique_ptr<Backend> backend_;
  std::int64_t skipped_ = 0;
};

}  // namespace millrace::capture
