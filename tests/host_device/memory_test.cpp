// What a device's memory is left with, and what a backend's first work waits for.
#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>

#include "capture/backend.h"
#include "tests/engine/trained.h"
#include "tests/host_device/host_device.h"

namespace millrace::engine {
namespace {

const c10::Device kDevice(at::kCUDA, 0);
constexpr std::int64_t kMany = 1 << 20;

/// What is held when LibTorch's caches are empty.
host_device::Held held_now() {
  c10::cuda::CUDACachingAllocator::emptyCache();
  at::getHostAllocator(at::kCUDA)->empty_cache();
  return host_device::held();
}

/// While anything is captured nothing goes back to the device: what a trainer recorded must have
/// gone before the next one records.
TEST(Memory, OfARecordedTrainerIsTheNextOnes) {
  std::size_t first = 0;
  for (int run = 0; run < 4; ++run) {
    TrainerOptions options = small("pipedream", 2, {4});
    options.capture = Capture::automatic;
    options.devices.assign(2, {.cuda = true, .index = 0});
    Trainer trainer(options);
    SampleFeed feed(kShape, 12);
    trainer.run(feed, nullptr);
    ASSERT_TRUE(trainer.recorded());
    const std::size_t now = host_device::held().device_bytes;
    if (run == 1) first = now;
    if (run > 1) {
      EXPECT_LE(now, first);
    }
  }
}

TEST(Memory, ThatOthersHaveDoneWithGoesBackBeforeABackendRecords) {
  const std::size_t before = held_now().device_bytes;
  at::empty({kMany}, at::TensorOptions(kDevice));
  ASSERT_GT(host_device::held().device_bytes, before);
  const auto backend = capture::make_graph_backend(kDevice);
  EXPECT_EQ(host_device::held().device_bytes, before);
}

TEST(Memory, OnTheHostThatARecordingTookGoesWithItsBackend) {
  const at::Tensor made = at::ones({kMany}, at::TensorOptions(kDevice));
  const std::size_t before = held_now().pinned_bytes;
  {
    const auto backend = capture::make_graph_backend(kDevice);
    const auto recording = backend->record(0, [&] {
      at::Tensor host = at::empty({kMany}, at::TensorOptions().pinned_memory(true));
      backend->copy(host, made);
    });
    ASSERT_GT(host_device::held().pinned_bytes, before);
  }
  EXPECT_EQ(held_now().pinned_bytes, before);
}

TEST(Memory, ThatIsStillBeingWrittenIsWaitedForByAnEagerStage) {
  const auto backend = capture::make_eager_backend(kDevice);
  host_device::delay(2000);
  at::Tensor made;
  {
    const c10::cuda::CUDAStreamGuard elsewhere(
        c10::cuda::getStreamFromPool(false, kDevice.index()));
    made = at::ones({kMany}, at::TensorOptions(kDevice));
  }
  backend->run([&] { made.add_(1); });
  host_device::delay(0);
  EXPECT_EQ(made.cpu()[kMany - 1].item<float>(), 2);
  EXPECT_EQ(host_device::violations(), 0);
}

}  // namespace
}  // namespace millrace::engine
