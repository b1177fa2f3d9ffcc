// A network's step as one recorded graph with nothing around it: what the engine is held against.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "capture/backend.h"
#include "engine/trainer/trainer.h"
#include "stages/stage.h"

namespace millrace::bench {

enum class BareWork {
  step,     ///< copies in, forward, backward, update, copies out
  compute,  ///< forward, backward, update, on a sample that lies on the device
  forward,  ///< copies in, forward alone with its loss, copies out
};

/// A whole network's work on one sample as one graph on a stream of its own, without engine, slots,
/// links or waits. Copies the sample, which is its target too, from pinned memory, and prediction
/// and loss to there, as StageStep does. Thread-bound; synchronize() before it goes.
class BareStep {
 public:
  /// Of `options` network, sample, weights, optimizer and first device count. Records on a random
  /// sample, and leaves the weights as they are. Throws std::exception for what can't be recorded
  /// or has no room.
  explicit BareStep(engine::TrainerOptions options, BareWork work = BareWork::step);

  /// Starts the work on one sample and returns.
  void launch() { graph_->launch(); }
  /// Has the calling thread wait for all launches.
  void synchronize() { backend_->synchronize(); }

  // The rest only when no launch is under way.
  at::Tensor& sample() { return sample_; }  ///< on the host, [1,C,H,W]
  stages::Stage& stage() { return stage_; }
  float loss() const { return loss_.const_data_ptr<float>()[0]; }  ///< of the last launch
  /// Updates left out since their gradient was not finite.
  std::int64_t skipped() const { return std::int64_t(skipped_.const_data_ptr<float>()[0]); }

 private:
  void run();
  void show(at::Tensor& on_host, const at::Tensor& made);

  std::unique_ptr<capture::Backend> backend_;
  stages::Stage stage_;
  BareWork work_;
  at::Tensor sample_, prediction_, loss_, skipped_;  ///< on the host
  at::Tensor input_, rate_, skipped_on_device_;
  std::unique_ptr<capture::Recording> recording_;
  std::unique_ptr<capture::Graph> graph_;
};

}  // namespace millrace::bench
