#include "capture/stage_step.h"

#include <ATen/ATen.h>      // tensor creation
#include <ATen/Parallel.h>  // intra-op threads

namespace millrace::capture {

SampleBuffers::SampleBuffers(int slots, at::IntArrayRef shape, bool shared_target) {
  for (int slot = 0; slot < slots; ++slot) {
    input.push_back(at::zeros(shape, at::kFloat));
    target.push_back(shared_target ? input.back() : at::zeros(shape, at::kFloat));
  }
}

StageStep::StageStep(stages::Stage stage, c10::Device device, SampleBuffers& samples,
                     BoundaryBuffers* upstream, BoundaryBuffers* downstream)
    : stage_(std::move(stage)),
      device_(device),
      samples_(samples),
      upstream_(upstream),
      downstream_(downstream),
      kept_(slots()),
      predictions_(slots()),
      losses_(slots()) {}

void StageStep::prepare() {
  // This thread takes on the process's intra-op thread count now. Left to itself that happens at
  // the first large operator, which a small stage never calls: its convolutions would then start a
  // team of threads, all pinned to this worker's core.
  at::init_num_threads();
  recorder_ = make_recorder(device_);
  for (int slot = 0; slot < slots(); ++slot) {
    forward_.push_back(recorder_->record([this, slot] { run_forward(slot); }));
    backward_.emplace_back();
    for (int gradient = 0; gradient < slots(); ++gradient) {
      backward_.back().push_back(
          recorder_->record([this, slot, gradient] { run_backward(slot, gradient); }));
    }
  }
  update_ = recorder_->record([this] { stage_.update(); });
}

void StageStep::forward(int slot, std::int64_t version) {
  version_ = version;
  forward_[slot]->replay();
}

void StageStep::backward(int slot, int gradient_slot) {
  backward_[slot][gradient_slot]->replay();
}

const float* StageStep::prediction(int slot) const {
  predictions_[slot] = predictions_[slot].contiguous().cpu();
  return predictions_[slot].const_data_ptr<float>();
}

float StageStep::loss(int slot) const {
  return losses_[slot].item<float>();
}

void StageStep::run_forward(int slot) {
  const at::Tensor input = (upstream_ ? upstream_->activations : samples_.input)[slot].to(device_);
  if (downstream_) {
    kept_[slot] = stage_.forward(input, version_);
    downstream_->activations[slot] = kept_[slot].output.detach();
  } else {
    kept_[slot] = stage_.forward(input, samples_.target[slot].to(device_), version_);
    predictions_[slot] = kept_[slot].output.detach();
    losses_[slot] = kept_[slot].loss.detach();
  }
}

void StageStep::run_backward(int slot, int gradient_slot) {
  const at::Tensor gradient =
      downstream_ ? downstream_->gradients[gradient_slot].to(device_) : at::Tensor();
  at::Tensor input_gradient = stage_.backward(kept_[slot], gradient);
  if (upstream_) upstream_->gradients[slot] = std::move(input_gradient);
}

}  // namespace millrace::capture
