// Whichever way a trainer takes frames, the samples made of them are the same.
#include "tools/run/frame_feed.h"

#include <gtest/gtest.h>

#include <vector>  // samples

#include "io/queue/planar.h"

namespace millrace::tools {
namespace {

using Floats = std::vector<float>;

constexpr int kSide = 6;

engine::TrainerOptions options_for(Task task, bool as_bytes) {
  engine::TrainerOptions options{.sample = {3, kSide, kSide}};
  options.stages = 1;
  stages::ModelSpec model{.layers = 2, .features = 4, .kernel = 3};
  if (task == Task::label) {
    model.preset = "layers";
    model.layer = {{.type = "flatten"}, {.type = "linear", .out = 4}};
  }
  options.network = stages::build_network(
      model, options.sample, task == Task::label ? stages::Gives::vector : stages::Gives::picture);
  options.target_is_input = task == Task::autoencode;
  options.input_as_bytes = as_bytes;
  options.target_as_bytes = as_bytes && task == Task::next_frame;
  return options;
}

/// Frame n: its bytes count up from 60 n, its class is n.
io::Frame picture(int n) {
  io::Frame frame{.width = kSide, .height = kSide, .channels = 3, .label = n};
  for (std::size_t i = 0; i < frame.bytes(); ++i) frame.pixels.push_back(std::uint8_t(60 * n + i));
  return frame;
}

Floats floats_of(int n) {
  Floats floats(picture(n).bytes());
  io::to_planar(picture(n), floats.data());
  return floats;
}

class FrameFeedTest : public testing::TestWithParam<bool> {
 protected:
  struct Sample {
    Floats input, target;
  };

  /// What a task makes of frames 0, 1 and 2.
  std::vector<Sample> samples(Task task) {
    engine::Trainer trainer(options_for(task, GetParam()));
    EXPECT_EQ(trainer.input(0) == nullptr, GetParam());
    io::FrameQueue queue(4, io::Drop::never);
    for (int n = 0; n < 3; ++n) {
      queue.writable() = picture(n);
      queue.push();
    }
    queue.close();
    io::Resizer resizer(kSide, kSide);
    FrameFeed feed(trainer, queue, resizer, task);
    std::vector<Sample> made;
    for (;;) {
      const auto status = feed.poll(std::chrono::microseconds(0));
      if (status == engine::Feed::Status::end) break;
      if (status == engine::Feed::Status::wait) continue;
      engine::SampleInfo info;
      feed.take(0, info);
      EXPECT_EQ(info.frame, std::int64_t(made.size()));
      const float *input = trainer.shown_input(0), *target = trainer.shown_target(0);
      made.push_back({Floats(input, input + 3 * kSide * kSide),
                      Floats(target, target + trainer.target_elements())});
    }
    EXPECT_EQ(feed.pending(), task == Task::next_frame ? 1 : 0);
    return made;
  }
};

TEST_P(FrameFeedTest, AutoencodeHasTheFrameTwice) {
  const auto made = samples(Task::autoencode);
  ASSERT_EQ(made.size(), 3u);
  for (int n = 0; n < 3; ++n) {
    EXPECT_EQ(made[n].input, floats_of(n));
    EXPECT_EQ(made[n].target, floats_of(n));
  }
}

TEST_P(FrameFeedTest, NextFrameHasTheFrameAfter) {
  const auto made = samples(Task::next_frame);
  ASSERT_EQ(made.size(), 2u);
  for (int n = 0; n < 2; ++n) {
    EXPECT_EQ(made[n].input, floats_of(n));
    EXPECT_EQ(made[n].target, floats_of(n + 1));
  }
}

TEST_P(FrameFeedTest, NextFrameNeverPairsOverAGap) {
  engine::Trainer trainer(options_for(Task::next_frame, GetParam()));
  io::FrameQueue queue(3, io::Drop::newest);  // of frames 0 to 5 it keeps 3, 4 and 5
  for (int n = 0; n < 6; ++n) {
    queue.writable() = picture(n % 4);
    queue.writable().segment = n < 5 ? 0 : 1;  // an outage before 5
    queue.push();
  }
  queue.close();
  io::Resizer resizer(kSide, kSide);
  FrameFeed feed(trainer, queue, resizer, Task::next_frame);
  std::vector<std::int64_t> inputs;
  for (auto status = engine::Feed::Status::wait; status != engine::Feed::Status::end;) {
    status = feed.poll(std::chrono::microseconds(0));
    if (status != engine::Feed::Status::ready) continue;
    engine::SampleInfo info;
    feed.take(0, info);
    inputs.push_back(info.frame);
  }
  EXPECT_EQ(inputs, std::vector<std::int64_t>{3});
  EXPECT_EQ(queue.popped(), 3);
  EXPECT_EQ(feed.pending(), 2) << "4 and 5 have no successor";
}

TEST_P(FrameFeedTest, LabelHasTheClass) {
  const auto made = samples(Task::label);
  ASSERT_EQ(made.size(), 3u);
  for (int n = 0; n < 3; ++n) {
    EXPECT_EQ(made[n].input, floats_of(n));
    Floats expected(4, 0.0f);
    expected[n] = 1.0f;
    EXPECT_EQ(made[n].target, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, FrameFeedTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "bytes" : "floats"; });

}  // namespace
}  // namespace millrace::tools
