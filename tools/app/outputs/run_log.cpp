#include "tools/app/outputs/run_log.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::app {
namespace {

float mean_squared_error(const float* a, const float* b, std::size_t count) {
  constexpr std::size_t kLanes = 16;  // independent sums
  float sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float error = a[i + lane] - b[i + lane];
      sums[lane] += error * error;
    }
  }
  for (; i < count; ++i) sums[0] += (a[i] - b[i]) * (a[i] - b[i]);
  float sum = 0;
  for (const float lane : sums) sum += lane;
  return sum / float(count);
}

}  // namespace

double psnr(double mean_squared_error) {
  return -10 * std::log10(mean_squared_error);
}

RunLog::RunLog(engine::Trainer& trainer, const TaskType& task, std::int64_t before_classes,
               NoveltyWatch watch)
    : pictures_(task.pictures),
      later_frame_(task.target == TargetFrom::later_frame),
      shape_(trainer.output_shape()),
      mean_frame_(shape_, trainer.loss()),
      last_(&trainer.in_slot(0)),
      watch_(watch),
      novelty_(watch.options) {
  if (pictures_ && trainer.loss().text() != "mse") squared_.emplace();
  if (pictures_) changed_.emplace(shape_.channels, shape_.height, shape_.width);
  const std::size_t pixels = std::size_t(shape_.height * shape_.width);
  if (later_frame_ && trainer.context() > 1) linear_.resize(trainer.target_elements());
  if (task.classes)
    classes_.emplace(std::size_t(shape_.channels - before_classes), pixels,
                     std::size_t(before_classes) * pixels);
}

void RunLog::predicted(engine::Sample& sample, float loss) {
  last_ = &sample;
  if (!input_.empty()) {
    std::ranges::copy(sample.shown_input(), input_.begin());
    std::ranges::copy(sample.shown_target(), target_.begin());
    std::ranges::copy(sample.prediction(), prediction_.begin());
  }
  if (!sample.info.has_target) return;
  novelty_.see({.loss = loss,
                .changed = changed_ ? changed_->see(sample.shown_target().data()) : -1,
                .frame = frame_of(sample.info),
                .seconds = seconds_of(sample.info)});
  compare(sample, loss);
}

double RunLog::seconds_of(const engine::SampleInfo& sample) const {
  // A file may be read faster than it was filmed.
  if (watch_.fps > 0) return double(sample.frame) / watch_.fps;
  return std::chrono::duration<double>(sample.captured.time_since_epoch()).count();
}

void RunLog::compare(engine::Sample& sample, float loss) {
  const float *target = sample.shown_target().data(), *prediction = sample.prediction().data();
  const bool mean_known = mean_frame_.known();
  if (squared_) {
    squared_->network.add(squared_error(prediction, target));
    if (mean_known)
      squared_->mean_frame.add(squared_error(mean_frame_.mean().data(), target));
  }
  if (later_frame_) add(&Compared::last_frame, sample.shown_input().data(), target);
  if (!linear_.empty()) add(&Compared::linear, extrapolated(sample), target);
  if (classes_) classes_->see(target, prediction);
  losses_.network.add(loss);
  const float of_mean = mean_frame_.compare(target);
  mean_known ? losses_.mean_frame.add(of_mean) : losses_.mean_frame.show(of_mean);
}

float RunLog::squared_error(const float* made, const float* target) const {
  return mean_squared_error(made, target, mean_frame_.mean().size());
}

void RunLog::add(engine::LossHistory Compared::*predictor, const float* made,
                 const float* target) {
  const float squared = squared_error(made, target);
  (losses_.*predictor).add(squared_ ? mean_frame_.loss_of(made, target) : squared);
  if (squared_) ((*squared_).*predictor).add(squared);
}

const float* RunLog::extrapolated(engine::Sample& sample) {
  const float* const last = sample.shown_input().data();
  const float* const before = last - linear_.size();
  const float horizon = float(watch_.horizon);
  for (std::size_t i = 0; i < linear_.size(); ++i)
    linear_[i] = std::clamp(last[i] + horizon * (last[i] - before[i]), 0.0f, 1.0f);
  return linear_.data();
}

Standing RunLog::standing() const {
  Standing best;
  double least = std::numeric_limits<double>::infinity(), mine = losses_.network.recent();
  const auto meet = [&](const char* name, double error) {
    if (error < least) {
      least = error;
      best.strongest = name;
    }
  };
  if (classes_) {
    mine = 1 - classes_->hits().recent();
    meet("majority class", 1 - classes_->majority_hits().recent());
    meet("last class", 1 - classes_->last_hits().recent());
  } else {
    meet("mean frame", losses_.mean_frame.recent());
    meet("last frame", losses_.last_frame.recent());
    meet("linear extrapolation", losses_.linear.recent());
  }
  if (*best.strongest) best.times = least / mine;
  return best;
}

void RunLog::keep_pictures(engine::Sample& sample) {
  input_.resize(sample.shown_input().size());
  target_.resize(sample.shown_target().size());
  prediction_.resize(std::size_t(shape_.channels * shape_.height * shape_.width));
}

const float* RunLog::input() const {
  return input_.empty() ? last_->shown_input().data() : input_.data();
}

const float* RunLog::target() const {
  return input_.empty() ? last_->shown_target().data() : target_.data();
}

const float* RunLog::prediction() const {
  return input_.empty() ? last_->prediction().data() : prediction_.data();
}

}  // namespace millrace::app
