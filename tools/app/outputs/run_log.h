// What a run keeps of its predictions.
#pragma once

#include <optional>

#include "engine/monitor/loss_history.h"
#include "engine/pipeline/feed.h"
#include "engine/trainer/trainer.h"
#include "tools/app/config/task.h"
#include "tools/app/outputs/class_scores.h"
#include "tools/app/outputs/mean_frame.h"
#include "tools/app/outputs/novelty.h"

namespace millrace::app {

/// A loss, and that of the trivial predictors.
struct Compared {
  engine::LossHistory network, mean_frame, last_frame;
};

/// Losses of the network and of trivial predictors, and what was out of the ordinary among them.
/// Written by the last stage's worker; histories say what can be read meanwhile.
class RunLog final : public engine::Observer {
 public:
  /// `before_classes`: channels of a target that tell no class.
  RunLog(engine::Trainer& trainer, const TaskType& task, std::int64_t before_classes);

  void predicted(engine::Sample& sample, float loss) override;

  const engine::LossHistory& network() const { return losses_.network; }
  const engine::LossHistory& baseline() const { return losses_.mean_frame; }
  /// Of always predicting the input again; empty unless the task is to predict a later frame.
  const engine::LossHistory& last_frame() const { return losses_.last_frame; }
  /// Mean squared errors of pictures; null: targets are none.
  const Compared* squared() const {
    return !pictures_ ? nullptr : squared_ ? &*squared_ : &losses_;
  }
  const ClassScores* classes() const { return classes_ ? &*classes_ : nullptr; }
  const Novelty& novelty() const { return novelty_; }
  const MeanFrame& mean_frame() const { return mean_frame_; }
  /// Copies each sample's pictures, since its slot may be another sample's when the run is over.
  /// `sample`: of the same shapes. Before the run.
  void keep_pictures(engine::Sample& sample);
  // The last sample's, when the run is over.
  const float* input() const;
  const float* target() const;
  const float* prediction() const;

 private:
  void compare(engine::Sample& sample, float loss);

  const bool pictures_, later_frame_;
  const stages::ImageShape shape_;  ///< of a target
  Compared losses_;
  std::optional<Compared> squared_;  ///< none: the loss is that
  std::optional<ClassScores> classes_;
  MeanFrame mean_frame_;
  engine::Sample* last_;
  std::vector<float> input_, target_, prediction_;  ///< empty: they still lie in the slot
  Novelty novelty_;
};

/// Peak signal-to-noise ratio in dB of pictures with values from 0 to 1.
double psnr(double mean_squared_error);

}  // namespace millrace::app
