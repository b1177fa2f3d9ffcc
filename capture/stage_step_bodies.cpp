// What a stage's calls do, as they come or while they are recorded.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "capture/retained_bytes.h"
#include "capture/stage_step.h"
#include "stages/sample_of_bytes.h"

namespace millrace::capture {
namespace {

/// The same every time, so that measuring once is enough.
template <class Work>
void measure(std::optional<std::int64_t>& bytes, const Work& work) {
  if (bytes) {
    work();
  } else {
    bytes = retained_bytes(work);
  }
}

}  // namespace

void StageStep::run_forward(int slot, int buffer) {
  const c10::NoGradGuard no_grad;  // of the copies; the stage switches it on for itself
  const stages::Tensors inputs = upstream_
                                     ? take(upstream_->activations, slot, activations_in_)
                                     : stages::Tensors{fed(samples_.input[slot], inputs_[slot])};
  const bool told = compares() && !samples_.late_target;
  const at::Tensor target = !told                   ? at::Tensor()
                            : target_is_its_input() ? inputs[0]
                                                    : fed(samples_.target[slot], targets_[slot]);
  stages::Activations& kept = kept_[kept_at(slot, buffer)];
  measure(forward_bytes_, [&] { kept = stage_.forward(inputs, target, buffer); });
  keeps(kept_at(slot, buffer), *forward_bytes_);
  if (downstream_) return leave(downstream_->activations, slot, kept.outputs);
  if (!records()) {
    samples_.prediction[slot] = kept.outputs[0];
    losses_[slot] = kept.loss;
    return;
  }
  made_[kept_at(slot, buffer)] = {.prediction = kept.outputs[0].contiguous(), .loss = kept.loss};
  if (!shown_[slot]) run_show(slot, buffer);
}

void StageStep::run_show(int slot, int buffer) {
  const Made& made = made_[kept_at(slot, buffer)];
  show(samples_.prediction[slot], made.prediction);
  if (made.loss.defined()) show(losses_[slot], made.loss);
  if (shown_[slot]) shown_[slot]->set(*backend_);
}

void StageStep::run_compare(int slot, int buffer) {
  const c10::NoGradGuard no_grad;  // as in a forward
  stages::Activations& kept = kept_[kept_at(slot, buffer)];
  stage_.compare(kept, fed(samples_.target[slot], targets_[slot]));
  if (downstream_) return;
  if (records()) return show(losses_[slot], kept.loss);
  losses_[slot] = kept.loss;
}

void StageStep::run_recompute(int slot, int buffer) {
  const std::size_t kept = kept_at(slot, buffer);
  measure(recompute_bytes_, [&] { stage_.recompute(kept_[kept]); });
  keeps(kept, *forward_bytes_ + *recompute_bytes_);
}

void StageStep::run_backward(Kind kind, Backward part, int slot, int buffer, int gradient_slot,
                             stages::Adding adding) {
  const c10::NoGradGuard no_grad;
  const std::size_t kept = kept_at(slot, buffer);
  stages::Tensors gradients, made;
  if (downstream_) gradients = take(downstream_->gradients, gradient_slot, gradients_in_);
  const auto work = [&] { made = (stage_.*part)(kept_[kept], gradients, adding); };
  if (kind == Kind::backward) {
    work();
    if (!adding.retain) keeps(kept, 0);
  } else {
    if (!input_gradient_bytes_) {
      // Modules' gradients wait for backward_weight; those of the inputs belong to upstream.
      measure(input_gradient_bytes_, work);
      for (const at::Tensor& gradient : made)
        *input_gradient_bytes_ -= std::int64_t(gradient.nbytes());
    } else {
      work();
    }
    keeps(kept, *forward_bytes_ + recompute_bytes_.value_or(0) + *input_gradient_bytes_);
  }
  if (upstream_) leave(upstream_->gradients, slot, std::move(made));
}

void StageStep::run_update(const stages::Change& change) {
  const c10::NoGradGuard no_grad;
  if (!records()) {
    if (!stage_.update(change, rate_)) skipped_.add_(1);
    return;
  }
  stage_.guarded_update(change, rate_on_device_, skipped_on_device_);
  backend_->copy(skipped_, skipped_on_device_);
}

at::Tensor StageStep::brought(const at::Tensor& from, at::Tensor& mine) {
  if (!records()) return from.to(device_);
  if (!defers()) return from;  // a core reads where it lies
  if (!mine.defined()) mine = at::empty_like(from, at::TensorOptions(device_));
  backend_->copy(mine, from);
  return mine;
}

at::Tensor StageStep::fed(const at::Tensor& from, Fed& mine) {
  const at::Tensor here = brought(from, mine.sent);
  if (here.scalar_type() != at::kByte) return here;
  stages::sample_of_bytes(here, mine.floats);
  return mine.floats;
}

stages::Tensors StageStep::take(const BoundaryBuffers& from, int slot,
                                std::vector<stages::Tensors>& mine) {
  const stages::Tensors& sent = from.tensors[slot];
  mine[slot].resize(sent.size());
  stages::Tensors here;
  for (std::size_t i = 0; i < sent.size(); ++i)
    here.push_back(sent[i].device() == device_ ? sent[i] : brought(sent[i], mine[slot][i]));
  return here;
}

void StageStep::show(at::Tensor& on_host, const at::Tensor& made) {
  const at::Tensor plain = made.contiguous();
  if (!on_host.defined()) on_host = pinned_zeros(plain.sizes());
  backend_->copy(on_host, plain);
}

void StageStep::leave(BoundaryBuffers& to, int slot, stages::Tensors made) {
  stages::Tensors& there = to.tensors[slot];
  if (!records() && !to.fixed) {
    there = std::move(made);
    return;
  }
  // Into memory of the boundary's own: the pool that `made` lies in may use it again while the
  // reader is not done.
  there.resize(made.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (to.on_host) {
      show(there[i], made[i]);
    } else {
      if (!there[i].defined()) there[i] = at::empty_like(made[i]);
      there[i].copy_(made[i], /*non_blocking=*/true);
    }
  }
  if (to.arrived[slot]) to.arrived[slot]->set(*backend_);
}

void StageStep::keeps(std::size_t kept, std::int64_t bytes) {
  all_bytes_ += bytes - bytes_[kept];
  bytes_[kept] = bytes;
  peak_bytes_ = std::max(peak_bytes_, all_bytes_);
}

}  // namespace millrace::capture
