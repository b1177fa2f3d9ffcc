#pragma once

#include <algorithm>
#include <limits>
#include <optional>

#include "engine/monitor/loss_history.h"
#include "engine/pipeline/feed.h"
#include "engine/trainer/trainer.h"
#include "tools/app/assembly.h"
#include "tools/app/config/task.h"
#include "tools/app/outputs/class_scores.h"
#include "tools/app/outputs/mean_frame.h"

namespace millrace::app {

/// Losses of the network and of trivial predictors; empty where the task has none.
struct Compared {
  engine::LossHistory network;
  engine::LossHistory mean_frame;  ///< of the targets so far
  engine::LossHistory last_frame;  ///< the input, repeated
  engine::LossHistory linear;      ///< the last frame plus its change since the one before
};

/// Compares the network with the strongest trivial predictor of its task over the last 100 frames,
/// by loss or by the share of wrong classes.
struct Standing {
  const char* strongest = "";                     ///< "last frame"; "": nothing to compare yet
  double times = 0;                               ///< its error relative to the network's
  bool learned() const { return times >= 1.01; }  ///< who copies the last frame has about 1
};

/// Losses of the network and of trivial predictors, and class scores. Written by the last stage's
/// worker; for other threads see LossHistory.
class RunLog final : public engine::Observer {
 public:
  /// `judged`: see ClassScores. `trainer` outlives this.
  RunLog(const Config& config, engine::Trainer& trainer, std::int64_t judged)
      : task_(task_type(config.task.kind)),
        learns_(config.weights.learn),
        horizon_(later_frame() ? config.task.horizon : 0),
        mean_frame_(trainer.options().output(), trainer.options().loss),
        last_(&trainer.in_slot(0)) {
    const stages::ImageShape made = trainer.options().output();
    const std::int64_t before = channels_before(config), pixels = made.height * made.width;
    if (task_.pictures && trainer.options().loss.text() != "mse") squared_.emplace();
    if (later_frame() && trainer.options().context > 1)
      linear_.resize(trainer.options().target_elements());
    if (task_.classes)
      classes_.emplace(std::size_t(made.channels - before), std::size_t(pixels),
                       std::size_t(before * pixels), judged);
  }

  /// Whether targets are frames that come after their input.
  bool later_frame() const { return task_.target == TargetFrom::later_frame; }

  void predicted(engine::Sample& sample, float loss) override {
    last_ = &sample;
    if (!input_.empty()) {
      std::ranges::copy(sample.shown_input(), input_.begin());
      std::ranges::copy(sample.shown_target(), target_.begin());
      std::ranges::copy(sample.prediction(), prediction_.begin());
    }
    if (!sample.info.has_target) return;
    compare(sample, loss);
  }

  const engine::LossHistory& network() const { return losses_.network; }
  const engine::LossHistory& baseline() const { return losses_.mean_frame; }
  const Compared& losses() const { return losses_; }
  /// Any thread.
  Standing standing() const {
    Standing best;
    double least = std::numeric_limits<double>::infinity(), mine = losses_.network.recent();
    const auto meet = [&](const char* name, double error) {
      if (error < least) {
        least = error;
        best.strongest = name;
      }
    };
    if (classes_) {
      // Who learns labels could repeat the last one, except when a class returns.
      const bool all = classes_->pixels() || !learns_;
      const Scores<engine::LossHistory>& scores = all ? classes_->hits() : classes_->returned();
      mine = 1 - scores.network.recent();
      meet("majority class", 1 - scores.majority.recent());
      if (classes_->pixels()) meet("last class", 1 - classes_->last_hits().recent());
    } else {
      meet("mean frame", losses_.mean_frame.recent());
      meet("last frame", losses_.last_frame.recent());
      meet("linear extrapolation", losses_.linear.recent());
    }
    if (*best.strongest) best.times = least / mine;
    return best;
  }
  /// Mean squared errors of pictures; null: targets are not pictures.
  const Compared* squared() const {
    return !task_.pictures ? nullptr : squared_ ? &*squared_ : &losses_;
  }
  const ClassScores* classes() const { return classes_ ? &*classes_ : nullptr; }
  /// The source's number of the predicted frame.
  std::int64_t frame_of(const engine::SampleInfo& sample) const { return sample.frame + horizon_; }
  /// Its time in the stream, in seconds.
  static double seconds_of(const engine::SampleInfo& sample) {
    return std::chrono::duration<double>(sample.pts).count();
  }
  const MeanFrame& mean_frame() const { return mean_frame_; }
  /// Copies each sample's pictures from now on, for runs that reuse the slot before they end. Call
  /// it before the run; `sample` gives the shapes.
  void keep_pictures(engine::Sample& sample) {
    input_.resize(sample.shown_input().size());
    target_.resize(sample.shown_target().size());
    prediction_.resize(mean_frame_.mean().size());
  }
  struct Pictures {
    const float *input, *target, *prediction;
  };
  /// The last sample's, after the run.
  Pictures pictures() const {
    if (!input_.empty()) return {input_.data(), target_.data(), prediction_.data()};
    return {last_->shown_input().data(), last_->shown_target().data(), last_->prediction().data()};
  }

 private:
  void compare(engine::Sample& sample, float loss) {
    const float *target = sample.shown_target().data(), *prediction = sample.prediction().data();
    const bool mean_known = mean_frame_.known();
    if (squared_) {
      squared_->network.add(squared_error(prediction, target));
      if (mean_known) squared_->mean_frame.add(squared_error(mean_frame_.mean().data(), target));
    }
    if (later_frame()) add(&Compared::last_frame, sample.shown_input().data(), target);
    if (!linear_.empty()) add(&Compared::linear, extrapolated(sample), target);
    if (classes_) classes_->see(target, prediction, sample.info.frame);
    losses_.network.add(loss);
    const float of_mean = mean_frame_.compare(target);
    mean_known ? losses_.mean_frame.add(of_mean) : losses_.mean_frame.show(of_mean);
  }
  void add(engine::LossHistory Compared::*predictor, const float* made, const float* target) {
    const float squared = squared_error(made, target);
    (losses_.*predictor).add(squared_ ? mean_frame_.loss_of(made, target) : squared);
    if (squared_) ((*squared_).*predictor).add(squared);
  }
  float squared_error(const float* made, const float* target) const {
    const std::size_t count = mean_frame_.mean().size();
    const float sum = sum_in_lanes(
        count, [&](std::size_t i) { return (made[i] - target[i]) * (made[i] - target[i]); });
    return sum / float(count);
  }
  const float* extrapolated(engine::Sample& sample) {
    const float* const last = sample.shown_input().data();
    const float* const before = last - linear_.size();
    const float horizon = float(horizon_);
    for (std::size_t i = 0; i < linear_.size(); ++i)
      linear_[i] = std::clamp(last[i] + horizon * (last[i] - before[i]), 0.0f, 1.0f);
    return linear_.data();
  }
  const TaskType& task_;
  const bool learns_;
  const std::int64_t horizon_;  ///< frames from the input to the predicted one
  Compared losses_;
  std::optional<Compared> squared_;  ///< none: the loss is already the MSE
  std::optional<ClassScores> classes_;
  MeanFrame mean_frame_;
  std::vector<float> linear_;  ///< empty: samples hold one frame
  engine::Sample* last_;
  std::vector<float> input_, target_, prediction_;  ///< empty: read from the slot
};

}  // namespace millrace::app
