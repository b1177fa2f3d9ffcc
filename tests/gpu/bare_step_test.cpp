// A bare step is the engine's work and no other: it learns to the same bits.
#include "tools/bench/gpu/bare_step.h"
#include "engine/trainer/stage_building.h"

#include <ATen/Parallel.h>  // one intra-op thread

#include "tests/capture/double_stream.h"
#include "tests/engine/trained.h"

namespace millrace::bench {
namespace {

using engine::kShape;

engine::TrainerOptions recorded(int stages, std::vector<int> cut) {
  at::set_num_threads(1);
  engine::TrainerOptions options = engine::small("partime", stages, std::move(cut));
  options.optimizer = {.kind = "adam", .lr = 0.01};
  options.capture = engine::Capture::graph;
  options.make_backend = [](c10::Device) { return capture::make_double_stream(true); };
  return options;
}

TEST(BareStep, TrainsAsTheOracleAndTheEngineDo) {
  const engine::TrainerOptions options = recorded(1, {});
  const at::Tensor sample = engine::sample_at(0, kShape).first;
  std::vector<stages::Stage> stages = engine::build_stages(options, engine::schedule_of(options));
  BareStep step(std::move(stages[0]), options.make_backend(at::kCPU), BareWork::step, sample, {},
                {});
  engine::expect_equal_bits(step.stage().parameters().state(), options.weights);
  constexpr int kLaunches = 20;
  for (int i = 0; i < kLaunches; ++i) step.launch();
  step.synchronize();

  std::vector<stages::Stage> called = engine::build_stages(options, engine::schedule_of(options));
  called[0].update_as_recorded();
  const std::vector<float> losses = engine::run_oracle(
      engine::schedule_of(options), called, [&](std::int64_t) { return std::pair(sample, sample); },
      kLaunches);
  engine::expect_equal_bits(step.stage().parameters().state(), called[0].parameters().state());
  EXPECT_EQ(step.loss(), losses.back());
  EXPECT_EQ(step.skipped(), 0);

  engine::Trainer trainer(options);
  engine::SampleFeed feed(kShape, kLaunches);
  feed.rewrite = [&](std::int64_t, std::span<float> to) {
    std::copy_n(sample.const_data_ptr<float>(), to.size(), to.begin());
  };
  trainer.run(feed, nullptr);
  engine::expect_equal_bits(step.stage().parameters().state(), trainer.state());
}

TEST(BareStep, OfAMiddleStageIsItsCalls) {
  const engine::TrainerOptions options = recorded(3, {2, 5});
  const engine::Schedule schedule = engine::schedule_of(options);
  std::vector<stages::Stage> stages = engine::build_stages(options, schedule);
  const auto buffer = [&](int place) {
    const stages::ImageShape& shape = options.network->shape(place - 1);
    return at::rand({1, shape.channels, shape.height, shape.width});
  };
  const stages::Tensors inputs = {buffer(2)}, gradients = {buffer(5)};
  BareStep step(std::move(stages[1]), options.make_backend(at::kCPU), BareWork::step,
                engine::sample_at(0, kShape).first, inputs, gradients);
  stages::Stage called = std::move(engine::build_stages(options, schedule)[1]);
  called.update_as_recorded();
  for (int i = 0; i < 5; ++i) {
    step.launch();
    stages::Activations kept = called.forward(inputs);
    called.backward(kept, gradients);
    called.update({.count = 1}, 1.0);
  }
  step.synchronize();
  engine::expect_equal_bits(step.stage().parameters().state(), called.parameters().state());
}

TEST(BareStep, OfAForwardTakesALossAndLearnsNothing) {
  const engine::TrainerOptions options = recorded(1, {});
  const BareSteps steps = make_bare_steps(options, BareWork::forward);
  steps[0]->launch();
  steps[0]->synchronize();
  EXPECT_GT(steps[0]->loss(), 0);
  engine::expect_equal_bits(steps[0]->stage().parameters().state(), options.weights);
}

TEST(BareStep, OfEachStageOfACutNetworkLearnsAlone) {
  const engine::TrainerOptions options = recorded(4, {2, 4, 6});
  const BareSteps steps = make_bare_steps(options);
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_GT(seconds_a_round(steps, 0.001), 0);
  for (const auto& step : steps) EXPECT_EQ(step->skipped(), 0);
  EXPECT_GT(steps[3]->loss(), 0);
}

}  // namespace
}  // namespace millrace::bench
