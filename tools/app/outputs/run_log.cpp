#include "tools/app/outputs/run_log.h"

#include <algorithm>
#include <cmath>

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

RunLog::RunLog(engine::Trainer& trainer, const TaskType& task, std::int64_t before_classes)
    : trainer_(trainer),
      pictures_(task.pictures),
      later_frame_(task.task == Task::next_frame),
      shape_(trainer.output_shape()),
      mean_frame_(shape_, trainer.loss()) {
  if (pictures_ && trainer.loss().text() != "mse") squared_.emplace();
  const std::size_t pixels = std::size_t(shape_.height * shape_.width);
  if (task.classes)
    classes_.emplace(std::size_t(shape_.channels - before_classes), pixels,
                     std::size_t(before_classes) * pixels);
}

void RunLog::predicted(const engine::SampleInfo& info, int slot, float loss) {
  last_slot_ = slot;
  if (!input_.empty()) {
    std::copy_n(trainer_.shown_input(slot), input_.size(), input_.begin());
    std::copy_n(trainer_.shown_target(slot), target_.size(), target_.begin());
    std::copy_n(trainer_.prediction(slot), prediction_.size(), prediction_.begin());
  }
  if (!info.has_target) return;
  novelty_.see(loss);
  compare(slot, loss);
}

void RunLog::compare(int slot, float loss) {
  const float *target = trainer_.shown_target(slot), *prediction = trainer_.prediction(slot);
  const std::size_t count = trainer_.target_elements();
  if (squared_) {
    squared_->network.add(mean_squared_error(prediction, target, count));
    squared_->mean_frame.add(mean_squared_error(mean_frame_.mean().data(), target, count));
  }
  if (later_frame_) {
    const float* const input = trainer_.shown_input(slot);
    const float squared = mean_squared_error(input, target, count);
    losses_.last_frame.add(squared_ ? mean_frame_.loss_of(input, target) : squared);
    if (squared_) squared_->last_frame.add(squared);
  }
  if (classes_) classes_->see(target, prediction);
  losses_.network.add(loss);
  losses_.mean_frame.add(mean_frame_.compare(target));
}

void RunLog::keep_pictures(std::size_t inputs) {
  input_.resize(inputs);
  target_.resize(trainer_.target_elements());
  prediction_.resize(trainer_.target_elements());
}

const float* RunLog::input() const {
  return input_.empty() ? trainer_.shown_input(last_slot_) : input_.data();
}

const float* RunLog::target() const {
  return input_.empty() ? trainer_.shown_target(last_slot_) : target_.data();
}

const float* RunLog::prediction() const {
  return input_.empty() ? trainer_.prediction(last_slot_) : prediction_.data();
}

}  // namespace millrace::app
