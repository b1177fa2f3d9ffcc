// What a run keeps of its predictions.
#pragma once

#include "engine/feed.h"
#include "engine/loss_history.h"
#include "engine/trainer.h"
#include "tools/mean_frame.h"
#include "tools/video_out.h"

namespace millrace::tools {

/// Losses of the network and of the mean frame, and the video, if one is asked for. Written by the
/// last stage's worker; histories say what can be read meanwhile.
class RunLog final : public engine::Observer {
 public:
  RunLog(engine::Trainer& trainer, std::size_t elements)
      : trainer_(trainer), mean_frame_(elements) {}

  /// Before the run. `video` outlives it; null: none.
  void show_on(VideoOut* video) { video_ = video; }

  void predicted(const engine::SampleInfo& info, int slot, float loss) override {
    if (video_) video_->predicted(info, slot);
    network_.add(loss);
    baseline_.add(mean_frame_.compare(trainer_.target(slot)));
    last_slot_ = slot;
  }

  const engine::LossHistory& network() const { return network_; }
  const engine::LossHistory& baseline() const { return baseline_; }
  const MeanFrame& mean_frame() const { return mean_frame_; }
  int last_slot() const { return last_slot_; }  ///< when the run is over

 private:
  engine::Trainer& trainer_;
  engine::LossHistory network_, baseline_;
  MeanFrame mean_frame_;
  int last_slot_ = 0;
  VideoOut* video_ = nullptr;
};

}  // namespace millrace::tools
