#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "capture/backend.h"
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
  explicit BareStep(engine::TrainerOptions options, BareWork work = BareWork::step);

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
  void run();
  void show(at::Tensor& on_host, const at::Tensor& made);

  std::unique_ptr<capture::Backend> backend_;
  stages::Stage stage_;
  BareWork work_;
  at::Tensor sample_, prediction_, loss_, skipped_;
  at::Tensor input_, rate_, skipped_on_device_;
  std::unique_ptr<capture::Recording> recording_;
  std::unique_ptr<capture::Graph> graph_;
};

}  // namespace millrace::bench
