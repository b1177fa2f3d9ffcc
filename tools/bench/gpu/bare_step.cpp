#include "tools/bench/gpu/bare_step.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "capture/devices.h"
#include "engine/trainer/trainer.h"

namespace millrace::bench {
namespace {

engine::TrainerOptions in_one_stage(engine::TrainerOptions options) {
  capture::use_repeatable_kernels();  // as in the engine's steps
  options.stages = 1;
  options.cut.clear();
  options.devices.resize(1);
  return options;
}

}  // namespace

BareStep::BareStep(engine::TrainerOptions options, BareWork work)
    : backend_(
          std::move(engine::make_backends(options = in_one_stage(std::move(options)), 1, true)[0])),
      stage_(std::move(engine::build_stages(options, engine::schedule_of(options))[0])),
      work_(work),
      sample_(capture::pinned_zeros(options.sample.sizes())),
      loss_(capture::pinned_zeros({})),
      skipped_(capture::pinned_zeros({})) {
  sample_.uniform_();
  const c10::Device device = stage_.parameters().flat().device();
  input_ = sample_.to(device);
  rate_ = at::ones({}, at::kDouble).to(device);
  skipped_on_device_ = capture::seen_by(device, skipped_);
  // Recording warms up by running the work, which trains the weights.
  backend_->run([this] { stage_.take_snapshot(0); });
  backend_->synchronize();
  recording_ = backend_->record(0, [this] { run(); });
  graph_ = backend_->assemble({{.recording = recording_.get()}});
  backend_->run([this] { stage_.restore_snapshot(0); });
  backend_->synchronize();
}

void BareStep::show(at::Tensor& on_host, const at::Tensor& made) {
  const at::Tensor plain = made.contiguous();
  if (!on_host.defined()) on_host = capture::pinned_zeros(plain.sizes());
  backend_->copy(on_host, plain);
}

void BareStep::run() {
  const c10::NoGradGuard no_grad;  // for the copies; the stage enables gradients itself
  const bool copies = work_ != BareWork::compute;
  if (copies) backend_->copy(input_, sample_);
  stages::Activations kept = stage_.forward({input_}, input_);
  if (copies) {
    show(prediction_, kept.outputs[0]);
    show(loss_, kept.loss);
  }
  if (work_ == BareWork::forward) return;
  stage_.backward(kept, {});
  stage_.update({.count = 1}, rate_, skipped_on_device_);
}

}  // namespace millrace::bench
