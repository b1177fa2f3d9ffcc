#include "tools/bench/gpu/bare_step.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <chrono>

#include "capture/devices.h"
#include "engine/pipeline/feed.h"
#include "engine/trainer/stage_building.h"
#include "tools/bench/gpu/gpu_arm.h"

namespace millrace::bench {
namespace {

using engine::Clock;

/// Launches between two waits: none meets a full queue, and the device is idle for one launch's
/// time in so many.
constexpr int kLaunchesAhead = 64;

/// On the host first: a copy to the device is over when it returns, whatever stream comes next.
stages::Tensors random_tensors(const engine::TrainerOptions& options, int place, double scale,
                               c10::Device device) {
  stages::Tensors made;
  for (const int module : options.network->crossing(place)) {
    const stages::ImageShape& shape = options.network->shape(module);
    made.push_back(at::rand({1, shape.channels, shape.height, shape.width}).mul_(scale).to(device));
  }
  return made;
}

}  // namespace

BareStep::BareStep(stages::Stage stage, std::unique_ptr<capture::Backend> stream, BareWork work,
                   const at::Tensor& sample, stages::Tensors inputs, stages::Tensors gradients,
                   BareLaunch how)
    : stream_(std::move(stream)),
      stage_(std::move(stage)),
      work_(work),
      how_(how),
      sample_(capture::pinned_zeros(sample.sizes())),
      loss_(capture::pinned_zeros({})),
      skipped_(capture::pinned_zeros({})),
      inputs_(std::move(inputs)),
      gradients_(std::move(gradients)) {
  sample_.copy_(sample);
  const c10::Device device = stage_.parameters().flat().device();
  rate_ = at::ones({}, at::kDouble).to(device);
  skipped_on_device_ = at::zeros({}, at::kFloat).to(device);
  // Recording warms up by running the work, and so learns.
  stream_->run([this] { stage_.take_snapshot(0); });
  stream_->synchronize();
  if (how_ == BareLaunch::graph) {
    recording_ = stream_->record(0, [this] { run(); });
    graph_ = stream_->assemble({{.recording = recording_.get()}});
  } else {
    launch();  // libraries set themselves up
  }
  if (how_ == BareLaunch::pytorch_graph) {
    stream_->synchronize();
    stream_->run([this] { pytorch_graph_ = std::make_unique<PytorchGraph>([this] { run(); }); });
  }
  stream_->run([this] { stage_.restore_snapshot(0); });
  stream_->synchronize();
}

void BareStep::launch() {
  if (graph_) return graph_->launch();
  stream_->run([this] { pytorch_graph_ ? pytorch_graph_->replay() : run(); });
}

void BareStep::bring(const at::Tensor& from, at::Tensor& mine) {
  if (!mine.defined()) mine = at::empty_like(from, at::TensorOptions(rate_.device()));
  stream_->copy(mine, from);
}

void BareStep::show(at::Tensor& on_host, const at::Tensor& made) {
  const at::Tensor plain = made.contiguous();
  if (!on_host.defined()) on_host = capture::pinned_zeros(plain.sizes());
  stream_->copy(on_host, plain);
}

void BareStep::run() {
  const c10::NoGradGuard no_grad;  // of the copies; the stage switches it on for itself
  const bool first = stage_.range().first, last = stage_.range().last;
  if (first) bring(sample_, input_);
  if (first && last) target_ = input_;
  if (last && !first) bring(sample_, target_);
  stages::Activations kept =
      stage_.forward(first ? stages::Tensors{input_} : inputs_, target_, /*buffer=*/0);
  if (last) {
    show(prediction_, kept.outputs[0]);
    show(loss_, kept.loss);
  }
  if (work_ == BareWork::forward) return;
  stage_.backward(kept, gradients_, stages::Adding{.first = true});
  stage_.guarded_update({.count = 1}, rate_, skipped_on_device_);
  stream_->copy(skipped_, skipped_on_device_);
}

BareSteps make_bare_steps(const engine::TrainerOptions& options, BareWork work, BareLaunch how) {
  capture::use_repeatable_kernels();  // those that the engine's steps have
  std::vector<stages::Stage> stages = engine::build_stages(options, engine::schedule_of(options));
  const stages::ImageShape& shape = options.sample;
  const at::Tensor sample = at::rand({1, shape.channels, shape.height, shape.width});
  BareSteps steps;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const c10::Device device = stages[i].parameters().flat().device();
    const stages::StageRange range = stages[i].range();
    stages::Tensors inputs, gradients;
    if (!range.first) inputs = random_tensors(options, range.begin, 1.0, device);
    if (!range.last) gradients = random_tensors(options, range.end, 1e-9, device);
    steps.push_back(std::make_unique<BareStep>(
        std::move(stages[i]),
        options.make_backend ? options.make_backend(device) : capture::make_graph_backend(device),
        work, sample, std::move(inputs), std::move(gradients), how));
  }
  return steps;
}

double seconds_a_round(const BareSteps& steps, double seconds) {
  const auto launch_for = [&](std::chrono::duration<double> enough) {
    const Clock::time_point start = Clock::now();
    std::int64_t rounds = 0;
    for (; rounds == 0 || Clock::now() - start < enough; rounds += kLaunchesAhead) {
      for (int i = 0; i < kLaunchesAhead; ++i) {
        for (const auto& step : steps) step->launch();
      }
      for (const auto& step : steps) step->synchronize();
    }
    return std::chrono::duration<double>(Clock::now() - start).count() / double(rounds);
  };
  launch_for(kWarmUp);
  return launch_for(std::chrono::duration<double>(seconds));
}

}  // namespace millrace::bench
