// What a backend of recorded graphs must do, on a CUDA device.
#include "capture/backend.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "capture/devices.h"

namespace millrace::capture {
namespace {

const c10::Device kDevice(at::kCUDA, 0);

std::unique_ptr<Backend> backend_there() {
  return make_graph_backend(kDevice);
}

class BackendTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "no CUDA device here: nothing of this ran";
    stream_ = backend_there();
  }
  at::Tensor zeros(at::IntArrayRef sizes) const {
    return at::zeros(sizes, at::TensorOptions(kDevice));
  }
  /// Takes a device some time, and leaves `number` alone.
  at::Tensor slowly(const at::Tensor& number) const {
    at::Tensor square = zeros({256, 256});
    for (int i = 0; i < 8; ++i) square = at::mm(square, square);
    return number + square.sum();
  }
  std::unique_ptr<Backend> stream_;
};

TEST_F(BackendTest, RecordingDoesTheWorkOnceAndLaunchesDoTheRest) {
  at::Tensor count = zeros({1});
  const auto recording = stream_->record(0, [&] { count.add_(1); });
  const auto graph =
      stream_->assemble({{.recording = recording.get()}, {.recording = recording.get()}});
  stream_->synchronize();
  stream_->run([&] { count.zero_(); });
  for (int i = 0; i < 50; ++i) graph->launch();
  stream_->synchronize();
  EXPECT_TRUE(graph->over());
  EXPECT_GE(graph->duration_ns(), 0);
  EXPECT_EQ(count.item<float>(), 100);
}

/// A pipeline of three, as stages are: each waits for the one before and is far ahead on the host.
TEST_F(BackendTest, EventsInTheMiddleOfAGraphOrderStreams) {
  const auto other = backend_there();
  constexpr int kSlots = 4, kRounds = 60;
  at::Tensor number = zeros({1}), sum = zeros({1});
  std::vector<at::Tensor> slots;
  std::vector<std::unique_ptr<Event>> ready;
  std::vector<std::unique_ptr<Recording>> makes, takes;
  std::vector<std::unique_ptr<Graph>> makers, takers;
  const auto rest = stream_->record(9, [&] { slowly(number); });
  for (int slot = 0; slot < kSlots; ++slot) {
    slots.push_back(zeros({1}));
    ready.push_back(stream_->make_event());
    makes.push_back(stream_->record(slot, [&, slot] {
      number.add_(1);
      slots[slot].copy_(slowly(number));
    }));
    takes.push_back(other->record(slot, [&, slot] { sum.add_(slots[slot] * slots[slot]); }));
    makers.push_back(stream_->assemble(
        {{.recording = makes[slot].get(), .wait = nullptr, .signal = ready[slot].get()},
         {.recording = rest.get()}}));
    takers.push_back(
        other->assemble({{.recording = takes[slot].get(), .wait = ready[slot].get()}}));
  }
  stream_->synchronize();
  other->synchronize();
  stream_->run([&] { number.zero_(); });
  other->run([&] { sum.zero_(); });
  stream_->synchronize();
  other->synchronize();
  double expected = 0;
  for (int round = 0; round < kRounds; ++round) {
    // A slot is free when its reader's last launch is over.
    if (round >= kSlots) other->synchronize();
    makers[round % kSlots]->launch();
    takers[round % kSlots]->launch();
    expected += double(round + 1) * (round + 1);
  }
  stream_->synchronize();
  other->synchronize();
  EXPECT_EQ(sum.item<float>(), float(expected));
}

TEST_F(BackendTest, CopiesBetweenHostAndDevice) {
  at::Tensor from = pinned_zeros({5}), there = zeros({5}), back = pinned_zeros({5});
  const auto recording = stream_->record(0, [&] {
    stream_->copy(there, from);
    const at::Tensor more = there + 1;
    stream_->copy(back, more);
  });
  const auto graph = stream_->assemble({{.recording = recording.get()}});
  for (int round = 0; round < 3; ++round) {
    from.fill_(round);
    graph->launch();
    stream_->synchronize();
    EXPECT_TRUE(at::equal(back, at::full({5}, float(round + 1))));
  }
}

TEST_F(BackendTest, WhatCanNotBeRecordedIsSaidAndHarmsNothing) {
  at::Tensor number = zeros({1});
  EXPECT_THROW(stream_->record(0, [&] { (void)(number + 1).item<float>(); }), std::runtime_error);
  const auto recording = stream_->record(0, [&] { number.add_(1); });
  const auto graph = stream_->assemble({{.recording = recording.get()}});
  stream_->run([&] { number.zero_(); });
  graph->launch();
  stream_->synchronize();
  EXPECT_EQ(number.item<float>(), 1);
}

}  // namespace
}  // namespace millrace::capture
