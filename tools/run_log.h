// What a run keeps of its predictions.
#pragma once

#include <algorithm>  // max_element

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
  /// `labels`: targets are classes, and hits are counted.
  RunLog(engine::Trainer& trainer, bool labels)
      : trainer_(trainer), labels_(labels), mean_frame_(trainer.target_elements()) {}

  /// Before the run. `video` outlives it; null: none.
  void show_on(VideoOut* video) { video_ = video; }

  void predicted(const engine::SampleInfo& info, int slot, float loss) override {
    if (video_) video_->predicted(info, slot);
    if (labels_) hits_.add(hit(slot) ? 1.0f : 0.0f);
    network_.add(loss);
    baseline_.add(mean_frame_.compare(trainer_.target(slot)));
    last_slot_ = slot;
  }

  const engine::LossHistory& network() const { return network_; }
  /// 1 for a frame whose class was told, 0 for another; empty unless targets are classes.
  const engine::LossHistory& hits() const { return hits_; }
  const engine::LossHistory& baseline() const { return baseline_; }
  const MeanFrame& mean_frame() const { return mean_frame_; }
  int last_slot() const { return last_slot_; }  ///< when the run is over

 private:
  bool hit(int slot) {
    const std::size_t classes = trainer_.target_elements();
    const float *target = trainer_.target(slot), *told = trainer_.prediction(slot);
    return std::max_element(target, target + classes) - target ==
           std::max_element(told, told + classes) - told;
  }

  engine::Trainer& trainer_;
  bool labels_;
  engine::LossHistory network_, baseline_, hits_;
  MeanFrame mean_frame_;
  int last_slot_ = 0;
  VideoOut* video_ = nullptr;
};

}  // namespace millrace::tools
