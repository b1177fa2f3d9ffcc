// A trainer gets the same samples whether it takes frames as bytes or as floats.
#include "tools/app/feeds/frame_feed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "engine/trainer/trainer.h"
#include "io/queue/planar.h"
#include "tools/app/feeds/next_frame_feed.h"

namespace millrace::app {
namespace {

using Floats = std::vector<float>;

constexpr int kSide = 6;

engine::TrainerOptions options_for(TargetFrom target, bool as_bytes, int context = 1) {
  engine::TrainerOptions options{.sample = {3 * context, kSide, kSide}, .context = context};
  options.stages = 1;
  stages::ModelSpec model{.layers = 2, .features = 4, .kernel = 3};
  if (target == TargetFrom::label) {
    model.preset = "layers";
    model.layer = {{"flatten"}, {"linear", {{"out", 4}}}};
  }
  options.network = stages::build_network(
      model, options.frame(),
      target == TargetFrom::label ? stages::Gives::vector : stages::Gives::picture,
      {.context = context});
  options.target_is_input = target == TargetFrom::input;
  options.input_as_bytes = as_bytes;
  options.target_as_bytes = as_bytes && target == TargetFrom::later_frame;
  return options;
}

std::unique_ptr<FrameFeed> feed_of(TargetFrom target, engine::Trainer& trainer,
                                   io::FrameQueue& queue, io::Resizer& resizer, int horizon = 1,
                                   bool late = false) {
  if (target != TargetFrom::later_frame) return std::make_unique<FrameFeed>(queue, resizer, target);
  return std::make_unique<NextFrameFeed>(queue, resizer, Ahead{horizon, trainer.options().context},
                                         late, trainer.schedule().slots());
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

Floats floats(std::span<const float> numbers) {
  return {numbers.begin(), numbers.end()};
}

class FrameFeedTest : public testing::TestWithParam<bool> {
 protected:
  struct Sample {
    std::int64_t frame;
    Floats input, target;
  };

  /// Samples from the frames in `queue`, `left` of which give none.
  std::vector<Sample> samples(TargetFrom target, io::FrameQueue& queue, int horizon, int left) {
    engine::Trainer trainer(options_for(target, GetParam()));
    engine::Sample& sample = trainer.in_slot(0);
    EXPECT_EQ(sample.input().empty(), GetParam());
    queue.close();
    io::Resizer resizer(kSide, kSide);
    const std::unique_ptr<FrameFeed> feed = feed_of(target, trainer, queue, resizer, horizon);
    std::vector<Sample> made;
    for (;;) {
      const auto status = feed->poll(std::chrono::microseconds(0));
      if (status == engine::Feed::Status::end) break;
      if (status == engine::Feed::Status::wait) continue;
      feed->take(sample);
      made.push_back(
          {sample.info.frame, floats(sample.shown_input()), floats(sample.shown_target())});
    }
    EXPECT_EQ(feed->pending(), left);
    return made;
  }
};

TEST_P(FrameFeedTest, TargetsAreTheSameFrameOneSoManyLaterOrTheClass) {
  struct Case {
    TargetFrom target;
    int frames, horizon, made;
  };
  for (const auto& [from, frames, horizon, count] :
       {Case{TargetFrom::input, 3, 0, 3}, Case{TargetFrom::later_frame, 3, 1, 2},
        Case{TargetFrom::later_frame, 4, 3, 1}, Case{TargetFrom::label, 3, 0, 3}}) {
    io::FrameQueue queue(4, io::Drop::never);
    for (int n = 0; n < frames; ++n) {
      queue.writable() = picture(n);
      queue.push();
    }
    const auto made = samples(from, queue, horizon, frames - count);
    ASSERT_EQ(int(made.size()), count);
    for (int n = 0; n < count; ++n) {
      EXPECT_EQ(made[n].frame, n);
      EXPECT_EQ(made[n].input, floats_of(n));
      Floats expected = floats_of(n + horizon);
      if (from == TargetFrom::label) {
        expected.assign(4, 0.0f);
        expected[n] = 1.0f;
      }
      EXPECT_EQ(made[n].target, expected);
    }
  }
}

/// A stream that is pushed frame by frame through a feed with late targets.
class LateTargets : public FrameFeedTest {
 protected:
  using Status = engine::Feed::Status;
  static constexpr std::chrono::microseconds kNow{0};

  void start(int horizon, int context = 1, bool late = true) {
    engine::TrainerOptions options = options_for(TargetFrom::later_frame, GetParam(), context);
    options.schedule = "pipedream";
    options.stages = 3;  // slots for several samples
    options.cut = {1, 2};
    options.late_targets = late;
    trainer_ = std::make_unique<engine::Trainer>(options);
    ASSERT_GE(trainer_->schedule().slots(), 3);
    feed_ = feed_of(TargetFrom::later_frame, *trainer_, queue_, resizer_, horizon, late);
  }
  void push(int n, std::int64_t segment = 0) {
    queue_.writable() = picture(n);
    queue_.writable().segment = segment;
    queue_.push();
  }
  /// As if the queue had dropped it.
  void miss(int n) {
    push(n);
    queue_.release(queue_.pop(kNow));
  }
  std::int64_t take(int slot) {
    EXPECT_EQ(feed_->poll(kNow), Status::ready);
    feed_->take(sample(slot));
    return sample(slot).info.frame;
  }
  Floats target(int slot) { return floats(sample(slot).shown_target()); }
  engine::Sample& sample(int slot) { return trainer_->in_slot(slot); }
  /// Takes the next frame, which must be `frames`.back(), and checks the frames before it.
  void expect_context(const std::vector<int>& frames) {
    Floats expected;
    for (const int n : frames) std::ranges::copy(floats_of(n), std::back_inserter(expected));
    EXPECT_EQ(take(0), frames.back());
    EXPECT_EQ(floats(sample(0).shown_context()), expected);
    EXPECT_EQ(floats(sample(0).shown_input()), floats_of(frames.back()));
  }

  io::FrameQueue queue_{8, io::Drop::newest};
  io::Resizer resizer_{kSide, kSide};
  std::unique_ptr<engine::Trainer> trainer_;
  std::unique_ptr<FrameFeed> feed_;
};

TEST_P(LateTargets, AFrameIsASampleBeforeItsTargetIsThere) {
  start(1);
  push(0);
  EXPECT_EQ(take(0), 0);
  EXPECT_EQ(feed_->target(sample(0), kNow), Status::wait);
  EXPECT_EQ(feed_->targets_known(kNow), Status::wait);
  push(1);
  EXPECT_EQ(feed_->target(sample(0), kNow), Status::ready);
  EXPECT_EQ(target(0), floats_of(1));
  EXPECT_EQ(feed_->targets_known(kNow), Status::ready);
  EXPECT_EQ(take(1), 1) << "the target is a sample itself";
}

TEST_P(LateTargets, NoneComesOverAGapADropOrTheEnd) {
  start(2);
  push(0);
  push(1);
  EXPECT_EQ(take(0), 0);
  EXPECT_EQ(take(1), 1);
  push(2);
  EXPECT_EQ(take(2), 2);
  EXPECT_EQ(feed_->target(sample(0), kNow), Status::ready);
  push(3, 1);  // after an outage
  EXPECT_EQ(feed_->target(sample(1), kNow), Status::end);
  EXPECT_EQ(feed_->target(sample(2), kNow), Status::end);
  EXPECT_EQ(take(0), 3);
  queue_.close();
  EXPECT_EQ(feed_->target(sample(0), kNow), Status::end);
  EXPECT_EQ(feed_->poll(kNow), Status::end);
  EXPECT_EQ(feed_->pending(), 0);
}

TEST_P(LateTargets, AfterADropTheNewestFrameWithATargetIsNext) {
  start(1, 2);
  for (const int n : {0, 1}) push(n);
  EXPECT_EQ(take(0), 0);
  EXPECT_EQ(take(1), 1);
  miss(2);
  for (const int n : {3, 4, 5}) push(n);
  Floats before = floats_of(3);
  std::ranges::copy(floats_of(4), std::back_inserter(before));
  EXPECT_EQ(take(2), 4) << "3 would only delay";
  EXPECT_EQ(floats(sample(2).shown_context()), before);
  EXPECT_EQ(feed_->target(sample(1), kNow), Status::end);
  EXPECT_EQ(feed_->target(sample(2), kNow), Status::ready);
  EXPECT_EQ(target(2), floats_of(5));
  EXPECT_EQ(queue_.dropped(), 1) << "3";
  push(6);
  EXPECT_EQ(take(0), 5) << "no frame was dropped since";
  miss(7);
  push(8);
  EXPECT_EQ(feed_->poll(kNow), Status::wait) << "8's target would be dropped while stages work";
  EXPECT_EQ(queue_.dropped(), 2) << "6 can have no target";
  for (int n = 9; n < 9 + int(trainer_->schedule().slots()); ++n) {
    push(n);
    EXPECT_EQ(take(1), n - 1);
  }
  EXPECT_EQ(take(2), 8 + trainer_->schedule().slots()) << "the pipeline has caught up";
}

TEST_P(LateTargets, AfterADropTheNewestFrameIsNextWithoutLateTargetsToo) {
  start(1, 2, false);
  for (const int n : {0, 1}) push(n);
  EXPECT_EQ(feed_->poll(kNow), Status::wait);
  EXPECT_EQ(take(0), 0);
  miss(2);
  for (const int n : {3, 4, 5}) push(n);
  EXPECT_EQ(feed_->poll(kNow), Status::wait) << "2 is missing";
  EXPECT_EQ(take(1), 4) << "what comes before 3 is missing";
  EXPECT_EQ(target(1), floats_of(5));
  EXPECT_EQ(queue_.dropped(), 2) << "1 and 3";
}

TEST_P(LateTargets, ASampleHoldsTheFramesBeforeItsOwn) {
  start(1, 3);
  for (int n = 0; n < 4; ++n) push(n);
  expect_context({0, 0, 0});  // the start of the stream: the first frame is repeated
  expect_context({0, 0, 1});
  expect_context({0, 1, 2});
  expect_context({1, 2, 3});
  push(4, 1);  // after an outage, or a loop's seam
  push(5, 1);
  expect_context({4, 4, 4});
  expect_context({4, 4, 5});
}

INSTANTIATE_TEST_SUITE_P(Bytes, LateTargets, testing::Bool());
INSTANTIATE_TEST_SUITE_P(Bytes, FrameFeedTest, testing::Bool());

}  // namespace
}  // namespace millrace::app
