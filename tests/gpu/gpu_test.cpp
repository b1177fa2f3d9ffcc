// What only a GPU can show: recorded steps on a CUDA device against the oracle on a CPU core.
#include <ATen/ATen.h>                      // samples, buffers
#include <ATen/Parallel.h>                  // one intra-op thread
#include <c10/cuda/CUDACachingAllocator.h>  // what a step allocates
#include <gtest/gtest.h>

#include <cmath>   // how far apart
#include <limits>  // what is no number
#include <map>     // what the oracle has made

#include "capture/devices.h"
#include "stages/guarded_update.h"
#include "stages/sample_of_bytes.h"
#include "tests/engine/frame_stream.h"
#include "tests/engine/trained.h"

namespace millrace::engine {
namespace {

const stages::ImageShape kLarger{3, 16, 20};
constexpr int kSamples = 40;

#define NEEDS_A_GPU() \
  if (capture::cuda_devices() == 0) GTEST_SKIP() << "no CUDA device here: nothing of this ran"

/// What the oracle makes of `options` on a core, found once for all tests of a process.
const Trained& by_core(const TrainerOptions& options) {
  static std::map<std::string, Trained> all;
  const std::string key =
      options.schedule + std::to_string(options.stages) + options.correction.kind;
  const auto found = all.find(key);
  return found != all.end() ? found->second : all[key] = by_oracle(options, kSamples);
}

/// All stages on the first GPU, but those that `cpu` names.
TrainerOptions on_gpu(const std::string& schedule, int stages, Capture capture,
                      const std::vector<int>& cpu = {}) {
  at::set_num_threads(1);  // of the oracle, whose operators are too small to share
  TrainerOptions options;
  options.network = stages::build_network({.layers = 4, .features = 8, .kernel = 5}, kLarger);
  options.sample = kLarger;
  options.schedule = schedule;
  options.stages = stages;
  for (int stage = 1; stage < stages; ++stage) options.cut.push_back(2 * stage);
  options.optimizer = {.kind = "sgd", .lr = 0.05};
  options.weights = stages::initial_state(*options.network, 7);
  options.capture = capture;
  for (int stage = 0; stage < stages; ++stage)
    options.devices.push_back({.cuda = true, .index = 0});
  for (const int stage : cpu) options.devices[stage] = {.cuda = false, .index = 0};
  return options;
}

/// As far as float32's rounding may take two devices apart in `samples` updates.
void expect_near(const Trained& a, const Trained& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t n = 0; n < a.losses.size(); ++n)
    EXPECT_NEAR(a.losses[n], b.losses[n], 1e-4 * std::abs(b.losses[n]) + 1e-6) << "sample " << n;
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    EXPECT_TRUE(at::allclose(a.weights[i].second, b.weights[i].second, 1e-3, 1e-4))
        << a.weights[i].first;
  }
}

class Gpu : public testing::TestWithParam<std::string> {};

TEST_P(Gpu, RecordedStepsLearnAsTheOracleDoes) {
  NEEDS_A_GPU();
  for (const int stages : {1, 2, 4}) {
    SCOPED_TRACE(stages);
    const TrainerOptions options = on_gpu(GetParam(), stages, Capture::graph);
    expect_near(by_pipeline(options, kSamples), by_core(options));
  }
}

TEST_P(Gpu, RunsAreAlikeToTheBit) {
  NEEDS_A_GPU();
  const TrainerOptions options = on_gpu(GetParam(), 4, Capture::graph);
  expect_equal(by_pipeline(options, kSamples), by_pipeline(options, kSamples));
}

TEST_P(Gpu, RecordedStepsAreTheOracleOfTheSameKernels) {
  NEEDS_A_GPU();
  const TrainerOptions options = on_gpu(GetParam(), 2, Capture::graph);
  expect_equal(by_pipeline(options, kSamples),
               by_oracle(options, kSamples, 1, /*as_recorded=*/true));
}

TEST_P(Gpu, BesideStagesOnCores) {
  NEEDS_A_GPU();
  const TrainerOptions options = on_gpu(GetParam(), 4, Capture::graph, {1});
  expect_near(by_pipeline(options, kSamples), by_core(options));
}

INSTANTIATE_TEST_SUITE_P(Schedules, Gpu, testing::Values("partime", "pipedream", "gpipe", "2bw"),
                         [](const auto& info) { return "of_" + info.param; });

TEST(GpuStep, AllocatesNothingOnceRecorded) {
  NEEDS_A_GPU();
  Trainer trainer(on_gpu("partime", 4, Capture::graph));
  MeasuringFeed feed(50, 290, 300, [] {
    return long(c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocation[0].allocated);
  });
  trainer.run(feed, nullptr);
  EXPECT_EQ(feed.before, feed.after);
}

TEST(GpuStep, AnUpdateThatIsNotFiniteChangesNothing) {
  NEEDS_A_GPU();
  const auto cuda = at::TensorOptions(at::kCUDA);
  for (const char* kind : {"sgd", "rmsprop", "adam", "adamw"}) {
    stages::OptimizerSpec spec{.kind = kind, .momentum = 0.9};
    const at::Tensor weights = at::rand({1000}, cuda), before = weights.clone();
    const stages::Optimizer optimizer(spec, weights);
    const at::Tensor gradient = at::full({1000}, std::numeric_limits<float>::infinity(), cuda);
    const at::Tensor finite = at::isfinite(at::linalg_vector_norm(gradient, INFINITY));
    stages::guarded_update(stages::update_numbers(spec, 1),
                           {.from = weights,
                            .to = weights,
                            .gradient = gradient,
                            .state = optimizer.buffers(),
                            .memory = {}},
                           at::ones({}, cuda.dtype(at::kDouble)), finite);
    EXPECT_TRUE(at::equal(weights, before)) << kind;
    for (const auto& [name, buffer] : optimizer.state())
      EXPECT_EQ(buffer.abs().sum().item<float>(), 0) << kind << " " << name;
  }
}

TEST(GpuStep, UpdatesAsOnACore) {
  NEEDS_A_GPU();
  for (const char* kind : {"sgd", "rmsprop", "adam", "adamw"}) {
    for (const double momentum : {0.0, 0.9}) {
      const stages::OptimizerSpec spec{
          .kind = kind, .lr = 0.01, .momentum = momentum, .weight_decay = 0.1};
      at::Tensor weights[2];
      for (const bool cuda : {false, true}) {
        const at::TensorOptions here(cuda ? at::kCUDA : at::kCPU);
        at::Tensor& w = weights[cuda] =
            sample_at(0, kLarger).first.flatten().to(here.device()).clone();
        const stages::Optimizer optimizer(spec, w);
        for (int step = 1; step <= 20; ++step) {
          const at::Tensor g =
              sample_at(step, kLarger).first.flatten().sub(0.5).to(here.device()).clone();
          stages::guarded_update(
              stages::update_numbers(spec, 2),
              {.from = w, .to = w, .gradient = g, .state = optimizer.buffers(), .memory = {}},
              at::full({}, 0.5, here.dtype(at::kDouble)), at::ones({}, here.dtype(at::kBool)));
        }
      }
      EXPECT_TRUE(at::allclose(weights[1].cpu(), weights[0], 1e-4, 1e-6)) << kind << momentum;
    }
  }
}

TEST(GpuStep, MakesFloatsOfBytesAsACoreDoes) {
  NEEDS_A_GPU();
  // Below, at and beyond a block of threads.
  for (const std::int64_t channels : {1, 3}) {
    for (const auto& [height, width] : {std::pair(1, 1), {16, 16}, {101, 67}}) {
      const at::Tensor frame = frame_at(0, {channels, height, width});
      at::Tensor sample;
      stages::sample_of_bytes(frame.cuda(), sample);
      EXPECT_TRUE(at::equal(sample.cpu(), floats_of(frame)))
          << channels << "x" << height << "x" << width;
    }
  }
}

/// Of frames, with a target that is one of its own unless `target_is_input`.
Trained run_on_frames(TrainerOptions options, bool target_is_input, bool as_bytes) {
  options.target_is_input = target_is_input;
  options.input_as_bytes = options.target_as_bytes = as_bytes;
  Trainer trainer(options);
  FrameStream feed(options, 20);
  ShownLog log(options);
  trainer.run(feed, &log);
  return {trainer.state(), log.losses};
}

TEST(GpuStep, BytesAndFloatsAreAlikeToTheBit) {
  NEEDS_A_GPU();
  for (const Capture capture : {Capture::graph, Capture::eager}) {
    for (const std::vector<int>& cpu : std::vector<std::vector<int>>{{}, {0}, {2}}) {
      for (const bool target_is_input : {true, false}) {
        const TrainerOptions options = on_gpu("partime", 3, capture, cpu);
        expect_equal(run_on_frames(options, target_is_input, true),
                     run_on_frames(options, target_is_input, false));
      }
    }
  }
}

TEST(GpuStep, ModulesOfOtherKinds) {
  NEEDS_A_GPU();
  for (const char* correction : {"inverse-age", "local"}) {
    TrainerOptions options = on_gpu("partime", 2, Capture::graph);
    options.optimizer = {.kind = "adam", .lr = 1e-3};
    options.correction.kind = correction;
    expect_near(by_pipeline(options, kSamples), by_oracle(options, kSamples));
  }
}

}  // namespace
}  // namespace millrace::engine
