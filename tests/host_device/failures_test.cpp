// Whatever CUDA function fails, and whenever: a run ends in fallback to eager steps with the right
// weights, or in one clear line, and leaves nothing behind that a later run could see. What memory
// a run and a backend leave, what a backend's first work waits for, and when graphs are made.
#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>

#include "capture/backend.h"
#include "tests/engine/trained.h"
#include "tests/host_device/host_device.h"
#include "tests/repetitions.h"

namespace millrace::engine {
namespace {

constexpr int kSamples = 8;

TrainerOptions on_device() {
  TrainerOptions options = small("pipedream", 2, {4});
  options.capture = Capture::automatic;
  options.optimizer = {.kind = "adam", .lr = 0.01};
  options.devices = {{.cuda = true, .index = 0}, {.cuda = true, .index = 0}};
  return options;
}

struct Ended {
  std::string error;  ///< "": none
  bool recorded = false;
  Trained trained;
};

Ended train(Capture capture = Capture::automatic) {
  Ended ended;
  try {
    TrainerOptions options = on_device();
    options.capture = capture;
    const PastRun run(options, kSamples);
    ended.trained = run.trained();
    ended.recorded = run.trainer.now().recording.on;
  } catch (const std::exception& error) {
    ended.error = error.what();
  }
  return ended;
}

/// What is held when LibTorch's caches are empty.
host_device::Held held() {
  c10::cuda::CUDACachingAllocator::emptyCache();
  at::getHostAllocator(at::kCUDA)->empty_cache();
  return hostDeviceHeld();
}

void expect_right(const Ended& ended, const Ended& expected) {
  EXPECT_EQ(ended.error, "");
  if (!ended.error.empty()) return;
  expect_equal_bits(ended.trained.weights, expected.trained.weights);
  EXPECT_EQ(ended.trained.losses, expected.trained.losses);
}

/// Which calls of `count` fail in their turn: in a short run the first, one on the way, the last.
std::set<int> chosen(int count) {
  if (!is_long()) return {1, count / 3 + 1, count};
  std::set<int> all;
  for (int n = 1; n <= count; n += n < 60 ? 1 : 1 + count / 60) all.insert(n);
  return all;
}

class Failures : public testing::TestWithParam<int> {};

TEST_P(Failures, NeverLeadToWrongWeightsOrLeaks) {
  const Ended eager = train(Capture::eager);  // LibTorch's operators, what is fallen back to
  train();                                    // libraries have set themselves up
  const std::map<std::string, int> before = hostDeviceCalls();
  const Ended expected = train();
  ASSERT_EQ(expected.error, "");
  ASSERT_TRUE(expected.recorded);
  std::map<std::string, int> made = hostDeviceCalls();
  for (const auto& [name, count] : before) made[name] -= count;
  host_device::Held clean = held();

  int fallbacks = 0, errors = 0, unseen = 0;
  for (const auto& [name, count] : made) {
    if (count == 0) continue;
    for (const int nth : chosen(count)) {
      SCOPED_TRACE(name + " fails in its call " + std::to_string(nth));
      hostDeviceFail(name.c_str(), nth, GetParam());
      const Ended ended = train();
      hostDeviceFail("", 0, 0);
      if (ended.error.empty()) {
        expect_right(ended, ended.recorded ? expected : eager);
        ++(ended.recorded ? unseen : fallbacks);
      } else {
        EXPECT_EQ(ended.error.find('\n'), std::string::npos) << ended.error;
        ++errors;
      }
      expect_right(train(), expected);
      EXPECT_EQ(hostDeviceViolations(), 0);
      const host_device::Held now = held();
      EXPECT_EQ(now.captures, 0);
      if (name.find("Destroy") != std::string::npos || name.find("Free") != std::string::npos) {
        clean = now;  // what could not be given back is still there
        continue;
      }
      EXPECT_EQ(now.streams, clean.streams);
      EXPECT_EQ(now.graphs, clean.graphs);
      EXPECT_EQ(now.executables, clean.executables);
      EXPECT_EQ(now.device_bytes, clean.device_bytes);
    }
  }
  hostDeviceFail("cudaStreamBeginCapture", 1, GetParam());
  EXPECT_NE(train(Capture::graph).error, "") << "a run that must be recorded ends";
  std::cout << fallbacks << " fallbacks, " << errors << " errors, " << unseen << " not noticed\n";
  EXPECT_GT(fallbacks, 0);
  EXPECT_GT(errors, 0);
}

INSTANTIATE_TEST_SUITE_P(Of, Failures,
                         testing::Values(int(cudaErrorMemoryAllocation), int(cudaErrorUnknown)),
                         [](const auto& info) {
                           return info.param == int(cudaErrorMemoryAllocation) ? "memory"
                                                                               : "unknown";
                         });

const c10::Device kDevice(at::kCUDA, 0);
constexpr std::int64_t kMany = 1 << 20;

/// While anything is captured nothing goes back to the device: what a trainer recorded must have
/// gone before the next one records.
TEST(Memory, OfARecordedTrainerIsTheNextOnes) {
  std::size_t first = 0;
  for (int run = 0; run < 4; ++run) {
    const PastRun last(on_device(), kSamples);
    ASSERT_TRUE(last.trainer.now().recording.on);
    const std::size_t now = hostDeviceHeld().device_bytes;
    if (run == 1) first = now;
    if (run > 1) {
      EXPECT_LE(now, first);
    }
  }
}

TEST(Memory, ThatOthersHaveDoneWithGoesBackBeforeABackendRecords) {
  const std::size_t before = held().device_bytes;
  at::empty({kMany}, at::TensorOptions(kDevice));
  ASSERT_GT(hostDeviceHeld().device_bytes, before);
  const auto backend = capture::make_graph_backend(kDevice);
  EXPECT_EQ(hostDeviceHeld().device_bytes, before);
}

TEST(Memory, OnTheHostThatARecordingTookGoesWithItsBackend) {
  const at::Tensor made = at::ones({kMany}, at::TensorOptions(kDevice));
  const std::size_t before = held().pinned_bytes;
  {
    const auto backend = capture::make_graph_backend(kDevice);
    const auto recording = backend->record(0, [&] {
      at::Tensor host = at::empty({kMany}, at::TensorOptions().pinned_memory(true));
      backend->copy(host, made);
    });
    ASSERT_GT(hostDeviceHeld().pinned_bytes, before);
  }
  EXPECT_EQ(held().pinned_bytes, before);
}

TEST(Memory, ThatIsStillBeingWrittenIsWaitedForByAnEagerStage) {
  const auto backend = capture::make_eager_backend(kDevice);
  hostDeviceDelay(2000);
  at::Tensor made;
  {
    const c10::cuda::CUDAStreamGuard elsewhere(
        c10::cuda::getStreamFromPool(false, kDevice.index()));
    made = at::ones({kMany}, at::TensorOptions(kDevice));
  }
  backend->run([&] { made.add_(1); });
  hostDeviceDelay(0);
  EXPECT_EQ(made.cpu()[kMany - 1].item<float>(), 2);
  EXPECT_EQ(hostDeviceViolations(), 0);
}

// Once frames are learned from, no graph is made any more: that takes milliseconds, and memory that
// may be gone.

int graphs_made() {
  return hostDeviceCalls()["cudaGraphInstantiateWithFlags"];
}

/// Waits now and then, ends, and has a spoiled stretch that the guard rolls back at.
class Uneven final : public CountedFeed {
 public:
  Uneven() : CountedFeed(223) {}
  Status poll(std::chrono::microseconds patience) override {
    const bool waits = next_ % 7 == 3 && !std::exchange(waited_, !waited_);
    return waits ? Status::wait : CountedFeed::poll(patience);
  }
  int begun_with = 0;

 private:
  void fill(std::int64_t n, Sample& sample) override {
    if (n == 1) begun_with = graphs_made();
    const at::Tensor x = spoiled_at(n, kShape, n >= 130 && n < 135).first;
    std::copy_n(x.const_data_ptr<float>(), x.numel(), sample.input().begin());
  }
  bool waited_ = false;
};

TEST(LateGraphs, NoneIsMadeOnceFramesAreLearnedFrom) {
  for (const std::string& schedule : guarded_schedules("gpipe")) {
    SCOPED_TRACE(schedule);
    TrainerOptions options = small(schedule, 3, {2, 5});
    options.capture = Capture::automatic;
    options.optimizer = {.kind = "adam", .lr = 1e-3};
    options.devices.assign(3, {.cuda = true, .index = 0});
    options.guard = true;
    std::atomic<double> rate{1.0};
    std::atomic<std::int64_t> every{1};
    Trainer trainer(options);
    Uneven feed;
    PipelineOptions how;
    how.rate = &rate;
    how.train_every = &every;
    how.after_sample = [&](int, std::int64_t sample) {
      rate = sample % 50 < 25 ? 1.0 : 0.5;
      every = sample % 90 < 60 ? 1 : 3;
    };
    trainer.run(feed, nullptr, how);
    EXPECT_TRUE(trainer.now().recording.on);
    EXPECT_GE(trainer.guard().roll_backs(), 1);
    EXPECT_EQ(graphs_made(), feed.begun_with);
  }
}

}  // namespace
}  // namespace millrace::engine
