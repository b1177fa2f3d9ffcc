// Recorded steps on a CUDA device against the oracle on a CPU core.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include <cmath>

#include "capture/backend.h"
#include "capture/devices.h"
#include "capture/stage_step.h"
#include "engine/pipeline/perform.h"
#include "engine/schedule/launch_groups.h"
#include "tests/engine/trained.h"

namespace millrace::engine {
namespace {

const stages::ImageShape kLarger{3, 16, 20};
constexpr int kSamples = 16;  // few: the host device is slow

template <class Test>
class NeedsAGpu : public Test {
 protected:
  void SetUp() override {
    if (capture::cuda_devices() == 0) GTEST_SKIP() << "no CUDA device here: nothing of this ran";
  }
};
using Gpu = NeedsAGpu<testing::TestWithParam<std::string>>;
using GpuStep = NeedsAGpu<testing::Test>;

/// The oracle's result for `options` on a core, computed once for all tests of a process.
const Trained& by_core(const TrainerOptions& options) {
  static std::map<std::string, Trained> all;
  const auto key = options.schedule + std::to_string(options.stages) + options.correction.kind;
  const auto found = all.find(key);
  return found != all.end() ? found->second : all[key] = by_oracle(options, kSamples);
}

/// All stages on the first GPU, except those in `cpu`.
TrainerOptions on_gpu(const std::string& schedule, int stages, Capture capture,
                      const std::vector<int>& cpu = {}) {
  at::set_num_threads(1);  // the oracle's operators are too small to share
  std::vector<int> cut;
  for (int stage = 1; stage < stages; ++stage) cut.push_back(2 * stage);
  TrainerOptions options = small(schedule, stages, std::move(cut));
  options.network = stages::build_network({.layers = 4, .features = 8, .kernel = 5}, kLarger);
  options.sample = kLarger;
  options.optimizer = {.kind = "sgd", .lr = 0.05};
  options.weights = stages::initial_state(*options.network, 7);
  options.capture = capture;
  options.devices.assign(std::size_t(stages), {.cuda = true, .index = 0});
  for (const int stage : cpu) options.devices[stage] = {.cuda = false, .index = 0};
  return options;
}

/// Differences up to float32's rounding on two devices in `samples` updates.
void expect_near(const Trained& a, const Trained& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t n = 0; n < a.losses.size(); ++n)
    EXPECT_NEAR(a.losses[n], b.losses[n], 1e-4 * std::abs(b.losses[n]) + 1e-6) << "sample " << n;
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    EXPECT_TRUE(at::allclose(a.weights[i].second, b.weights[i].second, 1e-3, 1e-4))
        << a.weights[i].first;
  }
}

TEST_P(Gpu, RecordedStepsLearnAsTheOracleDoes) {
  for (const int stages : {1, 2, 4}) {
    SCOPED_TRACE(stages);
    const TrainerOptions options = on_gpu(GetParam(), stages, Capture::graph);
    expect_near(by_pipeline(options, kSamples), by_core(options));
  }
}

TEST_P(Gpu, RecordedStepsAreTheOracleOfTheSameKernels) {
  const TrainerOptions options = on_gpu(GetParam(), 4, Capture::graph);
  expect_equal(by_pipeline(options, kSamples),
               by_oracle(options, kSamples, 1, /*as_recorded=*/true));
}

TEST_P(Gpu, BesideStagesOnCores) {
  const TrainerOptions options = on_gpu(GetParam(), 4, Capture::graph, {1});
  expect_near(by_pipeline(options, kSamples), by_core(options));
}

INSTANTIATE_TEST_SUITE_P(Schedules, Gpu, testing::Values("partime", "pipedream", "gpipe", "2bw"),
                         [](const auto& info) { return "of_" + info.param; });

TEST_F(GpuStep, AllocatesNothingOnceRecorded) {
  Trainer trainer(on_gpu("partime", 4, Capture::graph));
  MeasuringFeed feed(20, 70, 75, [] {
    return long(c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocation[0].allocated);
  });
  trainer.run(feed, nullptr);
  EXPECT_EQ(feed.before, feed.after);
}

/// Random frames, as bytes [H,W,C] where the trainer takes bytes; a target other than the input is
/// the next frame.
class FrameStream final : public CountedFeed {
 public:
  FrameStream(std::int64_t end, bool target_is_input)
      : CountedFeed(end), target_is_input_(target_is_input) {}

 private:
  void fill(std::int64_t n, Sample& sample) override {
    give(n, sample.input_bytes(), sample.input());
    if (!target_is_input_) give(n + 1, sample.target_bytes(), sample.target());
  }
  static void give(std::int64_t n, std::span<std::uint8_t> bytes, std::span<float> floats) {
    const auto generator = at::detail::createCPUGenerator(std::uint64_t(2000 + n));
    const at::Tensor frame = at::randint(256, kLarger.sizes(), generator, at::kByte)[0];
    const at::Tensor pixels = frame.permute({1, 2, 0}).contiguous(), planes = frame / 255.0f;
    std::copy_n(pixels.const_data_ptr<std::uint8_t>(), bytes.size(), bytes.begin());
    std::copy_n(planes.const_data_ptr<float>(), floats.size(), floats.begin());
  }
  const bool target_is_input_;
};

Trained by_frames(const TrainerOptions& options) {
  Trainer trainer(options);
  FrameStream feed(8, options.target_is_input);
  LossLog log;
  trainer.run(feed, &log);
  return {trainer.state(), log.losses};
}

TEST_F(GpuStep, BytesAndFloatsAreAlikeToTheBit) {
  for (const Capture capture : {Capture::graph, Capture::eager}) {
    for (const auto& [cpu, correction] :  // of local losses every stage reads the target
         std::vector<std::pair<std::vector<int>, std::string>>{
             {{}, "none"}, {{}, "local"}, {{0}, "none"}, {{2}, "none"}}) {
      for (const bool target_is_input : {true, false}) {
        TrainerOptions options = on_gpu("partime", 3, capture, cpu);
        options.correction.kind = correction;
        options.target_is_input = target_is_input;
        const Trained by_floats = by_frames(options);
        options.input_as_bytes = options.target_as_bytes = true;
        expect_equal(by_frames(options), by_floats);
      }
    }
  }
}

/// Loss and prediction, though backward and update are under way.
TEST_F(GpuStep, APredictionIsThereBeforeItsLaunchIsOver) {
  const TrainerOptions options = on_gpu("partime", 1, Capture::graph);
  const Schedule schedule = for_recording(schedule_of(options));
  const c10::Device device(at::kCUDA, 0);
  capture::SampleBuffers samples(schedule.slots(), kLarger.sizes(), {}, true);
  capture::StageStep step(std::move(build_stages(options, schedule)[0]),
                          capture::make_graph_backend(device), device, samples, nullptr, nullptr);
  capture_steps(schedule, {&step});
  int early = 0;
  for (int n = 0; n < 60 || (early == 0 && n < 5000); ++n) {  // this thread may not get its turn
    const int slot = n % schedule.slots();
    samples.input[slot].copy_(sample_at(n, kLarger).first);
    step.forward(slot, stages::kNewest);
    step.backward(slot, slot);
    step.update();
    const std::int64_t launch = step.launch();
    while (!step.shown(slot)) {
    }
    early += step.over(launch) ? 0 : 1;
    const float loss = step.loss(slot);
    step.synchronize();
    EXPECT_TRUE(step.over(launch));
    EXPECT_EQ(step.loss(slot), loss);
  }
  EXPECT_GT(early, 0);
}

TEST_F(GpuStep, OtherOptimizersAndCorrections) {
  for (const auto& [optimizer, correction] :
       {std::pair("adam", "inverse-age"), {"adamw", "local"}, {"rmsprop", "none"}}) {
    TrainerOptions options = on_gpu("partime", 2, Capture::graph);
    options.optimizer = {.kind = optimizer, .lr = 1e-3};
    options.correction.kind = correction;
    expect_near(by_pipeline(options, kSamples), by_oracle(options, kSamples));
  }
}

/// Two launches in flight: the second one's time begins when the first is over.
TEST_F(GpuStep, TakesItsOwnTimeAlone) {
  const auto backend = capture::make_graph_backend({at::kCUDA, 0});
  const at::Tensor a = at::rand({700, 700}, at::kCUDA);
  const auto recording = backend->record(0, [&] { at::mm(a, a); });
  const auto graph = [&] { return backend->assemble({{.recording = recording.get()}}); };
  const auto first = graph(), second = graph();
  backend->synchronize();
  const Clock::time_point begin = Clock::now();
  first->launch();
  second->launch();
  backend->synchronize();
  const std::chrono::nanoseconds passed = Clock::now() - begin;
  EXPECT_GT(first->duration_ns(), 0);
  EXPECT_GT(second->duration_ns(), 0);
  EXPECT_LE(first->duration_ns() + second->duration_ns(), passed.count());
}

}  // namespace
}  // namespace millrace::engine
