#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <memory>

#include "capture/backend.h"
#include "capture/devices.h"
#include "engine/trainer/trainer.h"
#include "stages/stage.h"

namespace millrace::bench {

enum class BareWork {
  step,     ///< copies in, forward, backward, update, copies out
  compute,  ///< forward, backward, update, on a sample already on the device
  forward,  ///< copies in, forward with its loss, copies out
};

/// The reference for the engine: a whole network's work on one sample as one graph on its own
/// stream, without engine, slots, links or waits. Copies the sample, which is also its target, from
/// pinned memory, and prediction and loss to pinned memory, as StageStep does. Thread-bound; call
/// synchronize() before destruction.
class BareStep {
 public:
  /// Uses `options`' network, sample, weights, optimizer and first device. Records on a random
  /// sample and leaves the weights unchanged. Throws std::exception if the work can't be recorded
  /// or memory is short.
  explicit BareStep(engine::TrainerOptions options, BareWork work = BareWork::step)
      : backend_(std::move(
            engine::make_backends(options = in_one_stage(std::move(options)), 1, true)[0])),
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

  /// Starts the work on one sample, asynchronously.
  void launch() { graph_->launch_untimed(); }
  void synchronize() { backend_->synchronize(); }

  // Call these only while no launch is in flight.
  at::Tensor& sample() { return sample_; }  ///< on the host, [1,C,H,W]
  stages::Stage& stage() { return stage_; }
  float loss() const { return loss_.const_data_ptr<float>()[0]; }
  /// Updates skipped because of non-finite gradients.
  std::int64_t skipped() const { return std::int64_t(skipped_.const_data_ptr<float>()[0]); }

 private:
  static engine::TrainerOptions in_one_stage(engine::TrainerOptions options) {
    capture::use_repeatable_kernels();  // as in the engine's steps
    options.stages = 1;
    options.cut.clear();
    options.devices.resize(1);
    return options;
  }

  void show(at::Tensor& on_host, const at::Tensor& made) {
    const at::Tensor plain = made.contiguous();
    if (!on_host.defined()) on_host = capture::pinned_zeros(plain.sizes());
    backend_->copy(on_host, plain);
  }

  void run() {
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

  std::unique_ptr<capture::Backend> backend_;
  stages::Stage stage_;
  BareWork work_;
  at::Tensor sample_, prediction_, loss_, skipped_;
  at::Tensor input_, rate_, skipped_on_device_;
  std::unique_ptr<capture::Recording> recording_;
  std::unique_ptr<capture::Graph> graph_;
};

}  // namespace millrace::bench
