// A bare step does exactly the engine's work: it learns to the same bits.
#include "tools/bench/gpu/bare_step.h"

#include <ATen/Parallel.h>  // one intra-op thread

#include "tests/engine/trained.h"

namespace millrace::bench {
namespace {

using engine::kShape;

engine::TrainerOptions recorded() {
  at::set_num_threads(1);
  engine::TrainerOptions options = engine::small("partime", 1, {});
  options.optimizer = {.kind = "adam", .lr = 0.01};
  options.capture = engine::Capture::graph;
  options.devices = {{.cuda = true, .index = 0}};
  return options;
}

TEST(BareStep, TrainsAsTheOracleAndTheEngineDo) {
  const engine::TrainerOptions options = recorded();
  const at::Tensor sample = engine::sample_at(0, kShape).first;
  BareStep step(options);
  step.sample().copy_(sample);
  engine::expect_equal_bits(step.stage().parameters().state(), options.weights);
  constexpr int kLaunches = 20;
  for (int i = 0; i < kLaunches; ++i) step.launch();
  step.synchronize();

  const engine::Trained expected =
      engine::by_oracle(options, kLaunches, 1, /*as_recorded=*/true,
                        [&](std::int64_t) { return std::pair(sample, sample); });
  engine::expect_equal_bits(step.stage().parameters().state(), expected.weights);
  EXPECT_EQ(step.loss(), expected.losses.back());
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
  BareStep step(recorded(), BareWork::compute);
  step.launch();
  step.synchronize();
  EXPECT_EQ(step.loss(), 0) << "is not brought";
  EXPECT_FALSE(
      at::equal(step.stage().parameters().state()[0].second, recorded().weights[0].second));
}

TEST(BareStep, OfAForwardTakesALossAndLearnsNothing) {
  const engine::TrainerOptions options = recorded();
  BareStep step(options, BareWork::forward);
  step.launch();
  step.synchronize();
  EXPECT_GT(step.loss(), 0);
  engine::expect_equal_bits(step.stage().parameters().state(), options.weights);
}

}  // namespace
}  // namespace millrace::bench
