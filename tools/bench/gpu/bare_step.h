// A stage's step as one recorded graph with nothing around it: what the engine is held against.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "capture/backend.h"
#include "engine/trainer/trainer.h"
#include "stages/stage.h"
#include "tools/bench/gpu/pytorch_graph.h"

namespace millrace::bench {

enum class BareWork {
  step,     ///< forward, backward, update
  forward,  ///< forward alone, with its loss
};

/// How that is started.
enum class BareLaunch {
  graph,          ///< as one of our graphs
  pytorch_graph,  ///< as PyTorch replays one
  operators       ///< each operator anew, as PyTorch does: one stream, and no waits between them
};

/// A stage's work on one sample as one graph on a stream of its own, without engine, slots, links
/// or waits. The first stage copies its sample from pinned memory, and the last its target from
/// there and prediction and loss to there, as StageStep does; what neighbours would send lies in
/// fixed buffers on the device. Thread-bound; synchronize() before it goes.
class BareStep {
 public:
  /// Records, and leaves the weights as `stage` has them. `sample`: [1,C,H,W], also the target.
  /// `inputs`, `gradients`: what neighbours would send; none at the network's ends. Throws
  /// std::runtime_error for what can't be recorded or has no room.
  BareStep(stages::Stage stage, std::unique_ptr<capture::Backend> stream, BareWork work,
           const at::Tensor& sample, stages::Tensors inputs, stages::Tensors gradients,
           BareLaunch how = BareLaunch::graph);

  /// Starts the work on one sample and returns.
  void launch();
  /// Has the calling thread wait for all launches.
  void synchronize() { stream_->synchronize(); }

  // The rest only when no launch is under way.
  stages::Stage& stage() { return stage_; }
  /// Of the last launch, by the last stage.
  float loss() const { return loss_.const_data_ptr<float>()[0]; }
  /// Updates left out since their gradient was not finite.
  std::int64_t skipped() const { return std::int64_t(skipped_.const_data_ptr<float>()[0]); }

 private:
  void run();
  void bring(const at::Tensor& from, at::Tensor& mine);
  void show(at::Tensor& on_host, const at::Tensor& made);

  std::unique_ptr<capture::Backend> stream_;
  stages::Stage stage_;
  BareWork work_;
  BareLaunch how_;
  at::Tensor sample_, prediction_, loss_, skipped_;  ///< on the host
  stages::Tensors inputs_, gradients_;
  at::Tensor input_, target_, rate_, skipped_on_device_;
  std::unique_ptr<capture::Recording> recording_;
  std::unique_ptr<capture::Graph> graph_;
  std::unique_ptr<PytorchGraph> pytorch_graph_;
};

using BareSteps = std::vector<std::unique_ptr<BareStep>>;

/// The stages that `options` make, each recorded on its own stream: with network, sample, cut,
/// weights and devices; one device a stage, or none for CPU cores. A random sample, and random
/// gradients too small to lead the weights away in many launches.
BareSteps make_bare_steps(const engine::TrainerOptions& options, BareWork work = BareWork::step,
                          BareLaunch how = BareLaunch::graph);

/// Launches each of `steps` once a round, none waiting for another, for about `seconds` after
/// kWarmUp, and returns the seconds a round took. The calling thread stays a bounded number of
/// rounds ahead.
double seconds_a_round(const BareSteps& steps, double seconds);

}  // namespace millrace::bench
