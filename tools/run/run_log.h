// What a run keeps of its predictions.
#pragma once

#include "engine/monitor/loss_history.h"
#include "engine/pipeline/feed.h"
#include "engine/trainer/trainer.h"
#include "tools/run/mean_frame.h"
#include "tools/run/novelty.h"

namespace millrace::tools {

/// Losses of the network and of the mean frame, and what was out of the ordinary among them.
/// Written by the last stage's worker; histories say what can be read meanwhile.
class RunLog final : public engine::Observer {
 public:
  /// `labels`: targets are classes, and hits are counted.
  RunLog(engine::Trainer& trainer, bool labels)
      : trainer_(trainer),
        labels_(labels),
        class_counts_(labels ? trainer.target_elements() : 0),
        mean_frame_(trainer.target_elements(), stages::loss_type(trainer.loss())) {}

  void predicted(const engine::SampleInfo& info, int slot, float loss) override;

  const engine::LossHistory& network() const { return network_; }
  /// 1 for a frame whose class was told, 0 for another; empty unless targets are classes.
  const engine::LossHistory& hits() const { return hits_; }
  /// The same of always telling the class that came most often so far.
  const engine::LossHistory& majority_hits() const { return majority_hits_; }
  const engine::LossHistory& baseline() const { return baseline_; }
  const Novelty& novelty() const { return novelty_; }
  const MeanFrame& mean_frame() const { return mean_frame_; }
  /// Copies each sample's pictures, since its slot may be another sample's when the run is over.
  /// `inputs`: numbers of an input. Before the run.
  void keep_pictures(std::size_t inputs);
  // The last sample's, when the run is over.
  const float* input() const;
  const float* target() const;
  const float* prediction() const;

 private:
  void count_hits(int slot);

  engine::Trainer& trainer_;
  bool labels_;
  std::vector<std::int64_t> class_counts_;  ///< frames of each class so far
  engine::LossHistory network_, baseline_, hits_, majority_hits_;
  MeanFrame mean_frame_;
  int last_slot_ = 0;
  std::vector<float> input_, target_, prediction_;  ///< empty: they still lie in the slot
  Novelty novelty_;
};

}  // namespace millrace::tools
