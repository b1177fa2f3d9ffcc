// Wires between ranks' GPUs.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/engine/trained_by_ranks.h"
#include "tests/host_device/host_device.h"

namespace millrace::engine {
namespace {

int calls_of(const std::string& name) {
  return hostDeviceCalls()[name];
}

TrainerOptions on_two_gpus(const std::string& schedule) {
  TrainerOptions options = small(schedule, 2, {4});
  options.capture = Capture::automatic;
  options.devices = {{.cuda = true, .index = 0}, {.cuda = true, .index = 1}};
  return options;
}

class Wires : public testing::Test {
 protected:
  void SetUp() override {
    if (capture::gpus_here().empty()) GTEST_SKIP() << "this build has no NCCL";
  }
};

TEST_F(Wires, AreNotLaidWithinOneGpu) {
  TrainerOptions options = on_two_gpus("partime");
  options.devices[1].index = 0;
  const int before = calls_of("ncclCommInitRank");
  by_ranks(options, 20, 2);
  EXPECT_EQ(calls_of("ncclCommInitRank"), before);
}

/// A stream that ends within a minibatch leaves activations on their way that nobody takes; what
/// is shown of such samples is up to time.
TEST_F(Wires, EndWithAnythingOnItsWay) {
  for (const std::string schedule : {"partime", "gpipe", "1f1b", "zb-h1", "2bw"}) {
    for (const std::int64_t samples : is_long() ? std::vector{1, 5, 18, 31} : std::vector{5, 18}) {
      const TrainerOptions options = on_two_gpus(schedule);
      const Trained expected = by_pipeline(options, samples), got = by_ranks(options, samples, 2);
      expect_equal_bits(got.weights, expected.weights);
      for (std::size_t n = 0; n < std::min(got.losses.size(), expected.losses.size()); ++n)
        EXPECT_EQ(got.losses[n], expected.losses[n]) << schedule << ", " << samples << " samples";
    }
  }
}

TEST_F(Wires, CarryNoGradientOfAFrameThatIsNotLearnedFrom) {
  const auto spoiled = [](std::int64_t sample) { return sample % 7 < 2; };
  for (const std::string schedule : {"partime", "pipedream", "gpipe"}) {
    const TrainerOptions options = on_two_gpus(schedule);
    const Trained expected = by_pipeline(options, 40, spoiled),
                  got = by_ranks(options, 40, 2, spoiled);
    expect_equal_bits(got.weights, expected.weights);
  }
}

TEST_F(Wires, GiveUpWhatNeverComesOnceTheyAreCut) {
  capture::BoundaryBuffers from(1, 1), to(1, 1);
  const auto place = [](int index) { return c10::Device(c10::kCUDA, c10::DeviceIndex(index)); };
  from.tensors[0] = {at::ones({2, 3}, at::TensorOptions(place(0)))};
  to.tensors[0] = {at::zeros({2, 3}, at::TensorOptions(place(1)))};
  const auto sender = capture::make_graph_backend(place(0));
  from.ready[0] = sender->make_event();
  const auto sends = capture::make_wire(place(0), from, true),
             receives = capture::make_wire(place(1), to, false);
  const std::string name = capture::new_wire_name();
  std::thread other([&] { sends->connect(name); });
  receives->connect(name);
  other.join();
  receives->move(0);  // nobody sends
  receives->cut();
  receives->move(0);
  EXPECT_EQ(receives->moves(), 1);
  sends->cut();
}

TEST_F(Wires, ThatCannotBeConnectedSaySo) {
  capture::BoundaryBuffers way(1, 1);
  const c10::Device place(c10::kCUDA, 0);
  way.tensors[0] = {at::zeros({2}, at::TensorOptions(place))};
  const auto wire = capture::make_wire(place, way, false);
  hostDeviceFail("ncclCommInitRank", 1, 999);
  EXPECT_THROW(wire->connect(capture::new_wire_name()), std::runtime_error);
}

}  // namespace
}  // namespace millrace::engine
