#include "capture/stage_step.h"

#include <ATen/ATen.h>          // tensor creation
#include <ATen/Parallel.h>      // intra-op threads
#include <c10/core/GradMode.h>  // NoGradGuard

#include <algorithm>  // max

#include "capture/retained_bytes.h"
#include "stages/sample_of_bytes.h"

namespace millrace::capture {

namespace {

/// What the feed gave, as floats on `device`.
at::Tensor brought(const at::Tensor& fed, c10::Device device) {
  const at::Tensor here = fed.to(device);
  if (here.scalar_type() != at::kByte) return here;
  const c10::NoGradGuard no_grad;
  at::Tensor sample;
  stages::sample_of_bytes(here, sample);
  return sample;
}

/// Leaves `made` in `slot`.
void leave(Crossing& crossing, int slot, stages::Tensors made) {
  if (!crossing.fixed) {
    crossing.tensors[slot] = std::move(made);
    return;
  }
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < made.size(); ++i) crossing.tensors[slot][i].copy_(made[i]);
}

}  // namespace

StageStep::StageStep(stages::Stage stage, c10::Device device, SampleBuffers& samples,
                     BoundaryBuffers* upstream, BoundaryBuffers* downstream)
    : OwningStep(std::move(stage), device, samples, upstream, downstream),
      kept_(slots()),
      bytes_(slots(), 0),
      losses_(slots()) {}

void StageStep::prepare() {
  // This thread takes on the process's intra-op thread count now. Left to itself that happens at
  // the first large operator, which a small stage never calls: its convolutions would then start a
  // team of threads, all pinned to this worker's core.
  at::init_num_threads();
  backend_ = make_eager_backend(device_);
}

void StageStep::forward(int slot, std::int64_t version) {
  version_ = version;
  const auto body = [&] { run_forward(slot); };
  backend_->run(std::ref(body));
}

void StageStep::recompute(int slot) {
  const auto body = [&] { run_recompute(slot); };
  backend_->run(std::ref(body));
}

void StageStep::backward_weight(int slot) {
  const auto body = [&] { run_backward_weight(slot); };
  backend_->run(std::ref(body));
}

void StageStep::update() {
  const auto body = [&] { skipped_ += stage_.update() ? 0 : 1; };
  backend_->run(std::ref(body));
}

void StageStep::discard(int slot) {
  kept_[slot] = {};
  keeps(slot, 0);
}

void StageStep::backward(int slot, int gradient_slot) {
  const auto body = [&] { run_backward(&stages::Stage::backward, slot, gradient_slot); };
  backend_->run(std::ref(body));
}

void StageStep::backward_input(int slot, int gradient_slot) {
  const auto body = [&] { run_backward(&stages::Stage::backward_input, slot, gradient_slot); };
  backend_->run(std::ref(body));
}

float StageStep::loss(int slot) const {
  return losses_[slot].item<float>();
}

void StageStep::run_forward(int slot) {
  stages::Tensors inputs;
  if (upstream_) {
    upstream_->activations.synchronize(slot);
    for (const at::Tensor& sent : upstream_->activations.tensors[slot])
      inputs.push_back(sent.to(device_));
  } else {
    inputs.push_back(brought(samples_.input[slot], device_));
  }
  const at::Tensor target = !compares()             ? at::Tensor()
                            : target_is_its_input() ? inputs[0]
                                                    : brought(samples_.target[slot], device_);
  stages::Activations& kept = kept_[slot];
  // The same every time, so that once is enough.
  const auto work = [&] { kept = stage_.forward(inputs, target, version_); };
  if (!forward_bytes_) {
    forward_bytes_ = retained_bytes(work);
  } else {
    work();
  }
  keeps(slot, *forward_bytes_);
  if (downstream_) {
    leave(downstream_->activations, slot, kept.outputs);
  } else {
    samples_.prediction[slot] = kept.outputs[0];
    losses_[slot] = kept.loss;
  }
}

void StageStep::run_recompute(int slot) {
  const auto work = [&] { stage_.recompute(kept_[slot]); };
  if (!recompute_bytes_) {
    recompute_bytes_ = retained_bytes(work);
  } else {
    work();
  }
  keeps(slot, bytes_[slot] + *recompute_bytes_);
}

void StageStep::run_backward(stages::Tensors (stages::Stage::*part)(stages::Activations&,
                                                                    const stages::Tensors&),
                             int slot, int gradient_slot) {
  stages::Tensors gradients;
  if (downstream_) {
    downstream_->gradients.synchronize(gradient_slot);
    for (const at::Tensor& sent : downstream_->gradients.tensors[gradient_slot])
      gradients.push_back(sent.to(device_));
  }
  stages::Tensors input_gradients;
  const auto work = [&] { input_gradients = (stage_.*part)(kept_[slot], gradients); };
  const bool measure =
      part == static_cast<decltype(part)>(&stages::Stage::backward_input) && !input_gradient_bytes_;
  if (measure) {
    // Modules' gradients wait for backward_weight; those of the inputs belong to upstream.
    input_gradient_bytes_ = retained_bytes(work);
    for (const at::Tensor& gradient : input_gradients)
      *input_gradient_bytes_ -= std::int64_t(gradient.nbytes());
  } else {
    work();
  }
  if (upstream_) leave(upstream_->gradients, slot, std::move(input_gradients));
  keeps(slot, kept_[slot].pieces.empty() ? 0 : bytes_[slot] + *input_gradient_bytes_);
}

void StageStep::run_backward_weight(int slot) {
  stage_.backward_weight(kept_[slot]);
  keeps(slot, 0);
}

void StageStep::keeps(int slot, std::int64_t bytes) {
  all_bytes_ += bytes - bytes_[slot];
  bytes_[slot] = bytes;
  peak_bytes_ = std::max(peak_bytes_, all_bytes_);
}

}  // namespace millrace::capture
