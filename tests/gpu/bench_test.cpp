// The GPU benchmark: a bare step does exactly the engine's work, so it learns to the same bits, and
// every arm measures something. Nothing of how fast anything is.
#include <ATen/Parallel.h>  // one intra-op thread
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/engine/trained.h"
#include "tests/host_device/host_device.h"
#include "tools/bench/gpu/arms.h"
#include "tools/bench/gpu/bare_step.h"

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

using Json = nlohmann::ordered_json;

Json ask(const std::string& arm) {
  return answer({{"arm", arm},
                 {"network", {{"layers", 3}, {"features", 4}, {"kernel", 3}}},
                 {"width", 12},
                 {"height", 8},
                 {"stages", 2},
                 {"precision", "float32"},
                 {"seconds", .02},
                 {"turns", 2}});
}

TEST(GpuArms, EachMeasuresItsFigures) {
  const std::map<std::string, std::vector<std::string>> figures = {
      {"step", {"engine_ms", "step_ms", "ratio"}},
      {"stages", {"staged_fps", "one_fps", "ratio"}},
      {"processor time", {"engine_us", "launch_us", "ratio"}},
      {"latency", {"engine_ms", "bare_ms", "tail", "bare_tail", "ratio"}},
      {"profile", {"modules_ms", "step_ms", "ratio"}}};
  for (const auto& [arm, names] : figures) {
    SCOPED_TRACE(arm);
    const Json got = ask(arm);
    ASSERT_FALSE(got.contains("error")) << got;
    for (const std::string& name : names) {
      EXPECT_GT(got.at(name).get<double>(), 0) << name;
      EXPECT_TRUE(std::isfinite(got[name].get<double>())) << name;
      EXPECT_EQ(got["turns"].at(name).size(), 2u) << name;
    }
  }
  const Json kernels = ask("kernels");
  ASSERT_GT(kernels.at("operations").size(), 5u) << kernels;
  double flops = 0;
  for (const Json& operation : kernels["operations"]) {
    EXPECT_GT(operation.at("us").get<double>(), 0) << operation;
    EXPECT_GT(operation.at("bytes").get<double>(), 0) << operation;
    flops += operation.at("flops").get<double>();
  }
  EXPECT_GT(flops, 0);
}

/// What an arm throws is its answer.
TEST(GpuArms, OneThatFailsSaysSo) {
  for (const char* arm : {"step", "stages", "processor time", "latency"}) {
    hostDeviceFail("cudaStreamBeginCapture", 1, cudaErrorUnknown);
    const Json got = ask(arm);
    EXPECT_NE(got.value("error", "").find("CUDA error"), std::string::npos) << got;
    EXPECT_EQ(got.size(), 1u);
  }
}

}  // namespace
}  // namespace millrace::bench
