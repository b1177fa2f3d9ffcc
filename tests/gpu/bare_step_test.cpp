// A bare step does exactly the engine's work: it learns to the same bits.
#include "tools/bench/gpu/bare_step.h"

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
  BareStep step(options);
  step.sample().copy_(sample);
  engine::expect_equal_bits(step.stage().parameters().state(), options.weights);
  constexpr int kLaunches = 20;
  for (int i = 0; i < kLaunches; ++i) step.launch();
  step.synchronize();

  std::vector<stages::Stage> called = engine::build_stages(options, engine::schedule_of(options));
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

TEST(BareStep, OfAComputationLearnsWithoutCopies) {
  BareStep step(recorded(1, {}), BareWork::compute);
  step.launch();
  step.synchronize();
  EXPECT_EQ(step.loss(), 0) << "is not brought";
  EXPECT_FALSE(
      at::equal(step.stage().parameters().state()[0].second, recorded(1, {}).weights[0].second));
}

TEST(BareStep, OfAForwardTakesALossAndLearnsNothing) {
  const engine::TrainerOptions options = recorded(1, {});
  BareStep step(options, BareWork::forward);
  step.launch();
  step.synchronize();
  EXPECT_GT(step.loss(), 0);
  engine::expect_equal_bits(step.stage().parameters().state(), options.weights);
}

}  // namespace
}  // namespace millrace::bench
