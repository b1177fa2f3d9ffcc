// Losses and scores of a run's predictions.
#pragma once

#include <optional>

#include "engine/monitor/loss_history.h"
#include "engine/pipeline/feed.h"
#include "engine/trainer/trainer.h"
#include "tools/app/config/task.h"
#include "tools/app/outputs/changed_share.h"
#include "tools/app/outputs/class_scores.h"
#include "tools/app/outputs/mean_frame.h"
#include "tools/app/outputs/novelty.h"

namespace millrace::app {

/// A loss of the network and of the trivial predictors; of those that the task has not, empty.
struct Compared {
  engine::LossHistory network;
  engine::LossHistory mean_frame;  ///< of the targets so far
  engine::LossHistory last_frame;  ///< the input again
  engine::LossHistory linear;      ///< the last frame, and its change since the one before once more
};

/// The network beside the strongest of its task's trivial predictors, over the last 100 frames: by
/// loss, or by the share of classes that it misses.
struct Standing {
  const char* strongest = "";  ///< "last frame"; "": there is nothing to compare yet
  double times = 0;            ///< how many times as large the strongest one's error is
  bool learned() const { return times > 1; }
};

/// What is marked as novel, and how a frame's number follows from its input's.
struct NoveltyWatch {
  NoveltyOptions options = {};
  std::int64_t horizon = 0;  ///< frames from the input to the one that is predicted
  double fps = 0;            ///< of the stream; 0: unknown
};

/// Losses of the network and of trivial predictors, class scores and novelty. Written by the last
/// stage's worker; LossHistory says what other threads may read.
class RunLog final : public engine::Observer {
 public:
  /// `before_classes`: leading channels of a target that are no classes.
  RunLog(engine::Trainer& trainer, const TaskType& task, std::int64_t before_classes,
         NoveltyWatch watch = {});

  void predicted(engine::Sample& sample, float loss) override;

  const engine::LossHistory& network() const { return losses_.network; }
  const engine::LossHistory& baseline() const { return losses_.mean_frame; }
  const Compared& losses() const { return losses_; }
  /// Any thread.
  Standing standing() const;
  /// Mean squared errors of pictures; null: targets are not pictures.
  const Compared* squared() const {
    return !pictures_ ? nullptr : squared_ ? &*squared_ : &losses_;
  }
  const ClassScores* classes() const { return classes_ ? &*classes_ : nullptr; }
  const Novelty& novelty() const { return novelty_; }
  /// The number at the source of the frame that the network was to predict.
  std::int64_t frame_of(const engine::SampleInfo& sample) const {
    return sample.frame + watch_.horizon;
  }
  const MeanFrame& mean_frame() const { return mean_frame_; }
  /// Copies each sample's pictures, for runs that reuse the slot before they end. `sample`: any,
  /// for its shapes. Before the run.
  void keep_pictures(engine::Sample& sample);
  // The last sample's, after the run.
  const float* input() const;
  const float* target() const;
  const float* prediction() const;

 private:
  void compare(engine::Sample& sample, float loss);
  /// Adds the error of `made` to `errors`, and its squared one.
  void add(engine::LossHistory Compared::*predictor, const float* made, const float* target);
  float squared_error(const float* made, const float* target) const;
  const float* extrapolated(engine::Sample& sample);
  double seconds_of(const engine::SampleInfo& sample) const;

  const bool pictures_, later_frame_;
  const stages::ImageShape shape_;  ///< of a target
  Compared losses_;
  std::optional<Compared> squared_;  ///< none: the loss is the MSE
  std::optional<ClassScores> classes_;
  MeanFrame mean_frame_;
  std::vector<float> linear_;  ///< empty: samples hold one frame
  engine::Sample* last_;
  std::vector<float> input_, target_, prediction_;  ///< empty: read from the slot
  const NoveltyWatch watch_;
  std::optional<ChangedShare> changed_;  ///< none: targets are no pictures
  Novelty novelty_;
};

/// Peak signal-to-noise ratio in dB, for values from 0 to 1.
double psnr(double mean_squared_error);

}  // namespace millrace::app
