#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "io/queue/planar.h"
#include "tests/engine/thread_exchange.h"
#include "tests/engine/trained.h"
#include "tools/app/feeds/next_frame_feed.h"
#include "tools/app/feeds/replay_buffer.h"
#include "tools/app/feeds/replay_feed.h"
#include "tools/app/outputs/records.h"
#include "tools/app/request.h"

namespace millrace::app {
namespace {

std::set<std::int64_t> kept(const ReplayBuffer& buffer) {
  std::set<std::int64_t> frames;
  for (int place = 0; place < buffer.count(); ++place) frames.insert(buffer.frame(place));
  return frames;
}

TEST(ReplayBuffer, RecentKeepsTheLatestAndNeverGrows) {
  ReplayBuffer buffer(ReplayKind::recent, 4, 100, 7);
  const std::byte* const first = buffer.at(0);
  for (int n = 0; n < 30; ++n) buffer.keep(n, 1);
  EXPECT_EQ(kept(buffer), (std::set<std::int64_t>{26, 27, 28, 29}));
  EXPECT_EQ(buffer.bytes(), 400u);
  EXPECT_EQ(buffer.at(0), first);
}

TEST(ReplayBuffer, ReservoirKeepsEveryFrameWithTheSameChance) {
  std::map<std::int64_t, int> times;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    ReplayBuffer buffer(ReplayKind::reservoir, 5, 1, seed);
    for (int n = 0; n < 50; ++n) buffer.keep(n, 1);
    for (const std::int64_t frame : kept(buffer)) ++times[frame];
  }
  for (int n = 0; n < 50; ++n) {
    // 400 of 4000 on average, with a deviation of 19.
    EXPECT_NEAR(times[n], 400, 100) << "frame " << n;
  }
}

TEST(ReplayBuffer, HardGivesUpTheEasiestAndTakesThoseOfLargeLoss) {
  ReplayBuffer buffer(ReplayKind::hard, 3, 1, 7);
  buffer.keep(0, 9);
  buffer.keep(1, 1);
  buffer.keep(2, 4);
  buffer.keep(3, 1);
  EXPECT_EQ(kept(buffer), (std::set<std::int64_t>{0, 2, 3}));
  std::map<std::int64_t, int> times;
  for (int n = 0; n < 1400; ++n) ++times[buffer.frame(buffer.choose())];
  EXPECT_NEAR(times[0], 900, 90);
  EXPECT_NEAR(times[2], 400, 90);
  EXPECT_NEAR(times[3], 100, 50);
  buffer.set_loss(0, 0, 0.5f);  // learned by now
  buffer.keep(4, 5);
  EXPECT_EQ(kept(buffer), (std::set<std::int64_t>{2, 3, 4}));
  ReplayBuffer one(ReplayKind::hard, 1, 1, 7);
  one.keep(0, 1);
  one.keep(1, 2);
  one.set_loss(0, 0, 100);  // late: the sample is gone
  one.keep(2, 3);
  EXPECT_EQ(kept(one), std::set<std::int64_t>{2});
}

TEST(ReplayBuffer, KeepsNothingWhoseLossIsNotFinite) {
  for (const ReplayKind kind : {ReplayKind::recent, ReplayKind::reservoir, ReplayKind::hard}) {
    ReplayBuffer buffer(kind, 2, 1, 7);
    EXPECT_EQ(buffer.keep(0, std::nanf("")), -1);
    EXPECT_EQ(buffer.keep(1, INFINITY), -1);
    EXPECT_EQ(buffer.count(), 0);
  }
}

using engine::Feed;
using engine::kShape;
using namespace std::chrono_literals;

/// Frame n of a made-up stream.
io::Frame picture(std::int64_t n) {
  io::Frame frame{.width = 16, .height = 12, .channels = 3, .label = int(n % 4)};
  io::Random random{std::uint64_t(n)};
  for (std::size_t i = 0; i < frame.bytes(); ++i)
    frame.pixels.push_back(std::uint8_t(random.next()));
  return frame;
}

at::Tensor floats_of(std::int64_t n) {
  at::Tensor floats = at::empty({1, 3, 12, 16});
  io::to_planar(picture(n), floats.mutable_data_ptr<float>());
  return floats;
}

/// The predicted samples in order, with their losses.
struct Seen final : engine::Observer {
  struct Sample {
    std::int64_t number, frame;
    bool replayed;
    bool operator==(const Sample&) const = default;
  };
  void predicted(engine::Sample& sample, float loss) override {
    samples.push_back({sample.info.index, sample.info.frame, sample.info.replayed});
    losses.push_back(loss);
    if (look) look(sample);
  }
  std::vector<Sample> samples;
  std::vector<float> losses;
  std::function<void(engine::Sample&)> look;
};

/// Results of training on a stream of `frames` waiting frames.
struct Learned {
  engine::Outcome outcome;
  Seen seen, fresh;
  stages::StateDict weights;
};

Learned learn(const engine::TrainerOptions& options, std::int64_t frames, ReplayOptions replay) {
  engine::Trainer trainer(options);
  io::FrameQueue queue(int(frames) + 1, io::Drop::never);
  for (std::int64_t n = 0; n < frames; ++n) {
    queue.writable() = picture(n);
    queue.push();
  }
  queue.close();
  io::Resizer resizer(16, 12);
  FrameFeed stream(queue, resizer, TargetFrom::input);
  ReplayFeed feed(trainer, stream, false, replay);
  Learned learned;
  Observers observers;
  observers.add_for_all(&feed);
  observers.add_for_all(&learned.seen);
  observers.add(&learned.fresh);
  learned.outcome = trainer.run(feed, &observers);
  learned.weights = trainer.state();
  return learned;
}

constexpr const char* kKinds[] = {"recent", "reservoir", "hard"};

class EverySchedule : public testing::TestWithParam<std::tuple<engine::ScheduleCase, ReplayKind>> {
};

TEST_P(EverySchedule, LearnsWhatTheOracleLearnsFromTheSameSequenceAndCountsFreshFramesAlone) {
  const auto& [schedule, kind] = GetParam();
  const engine::TrainerOptions options = engine::small(schedule);
  constexpr int kFrames = 41;  // replayed samples complete the last minibatch
  const Learned learned =
      learn(options, kFrames, {.kind = kind, .places = 10, .share = 0.6, .seed = 5});
  const auto& samples = learned.seen.samples;
  const engine::Outcome& outcome = learned.outcome;
  const engine::Trained expected =
      engine::by_oracle(options, outcome.admitted, 1, false, [&](std::int64_t n) {
        const at::Tensor frame = floats_of(samples.at(std::size_t(n)).frame);
        return std::pair{frame, frame};
      });
  ASSERT_EQ(learned.seen.losses, expected.losses);
  engine::expect_equal_bits(learned.weights, expected.weights);
  EXPECT_GT(outcome.replayed, kFrames);

  EXPECT_EQ(outcome.trained, kFrames);
  EXPECT_EQ(outcome.rejected + outcome.predicted_only + outcome.without_target, 0);
  std::int64_t number = 0;
  for (const Seen::Sample& sample : learned.fresh.samples) {
    EXPECT_EQ(sample, (Seen::Sample{number, number, false})) << number;
    ++number;
  }
  EXPECT_GE(number, outcome.trained);
}

INSTANTIATE_TEST_SUITE_P(Replay, EverySchedule,
                         testing::Combine(testing::ValuesIn(std::vector<engine::ScheduleCase>{
                                              {"sequential", 2, {3}},
                                              {"partime", 3, {2, 5}},
                                              {"pb", 3, {2, 5}},
                                              {"pipedream", 3, {2, 5}},
                                              {"pipedream", 2, {3}, {2, 1}},
                                              {"2bw", 2, {3}},
                                              {"gpipe", 2, {3}},
                                              {"1f1b", 3, {2, 5}},
                                              {"interleaved", 4, {2, 4, 6}},
                                              {"zb-h1", 2, {3}}}),
                                          testing::Values(ReplayKind::recent, ReplayKind::reservoir,
                                                          ReplayKind::hard)),
                         [](const auto& info) {
                           return engine::name_of(std::get<0>(info.param)) + "_" +
                                  kKinds[std::size_t(std::get<1>(info.param))];
                         });

TEST(ReplayFeed, TheShareIsThatOfAllSamples) {
  for (const double share : {0.0, 0.25, 0.5, 0.75, 0.9}) {
    const engine::Outcome outcome =
        learn(engine::small("partime", 2, {3}), 200,
              {.kind = ReplayKind::recent, .places = 20, .share = share, .seed = 5})
            .outcome;
    const double all = double(outcome.replayed + outcome.trained);
    EXPECT_NEAR(double(outcome.replayed) / all, share, 0.02);
    EXPECT_EQ(outcome.trained, 200);
  }
}

/// Pairs of a frame and its successor are replayed unchanged, with late targets or not.
class PairsComeWhole : public testing::TestWithParam<bool> {};

TEST_P(PairsComeWhole, NextFrame) {
  engine::TrainerOptions options = engine::small("partime", 3, {2, 5});
  options.target_is_input = false;
  options.late_targets = GetParam();
  engine::Trainer trainer(options);
  io::FrameQueue queue(64, io::Drop::never);
  for (std::int64_t n = 0; n < 60; ++n) {
    queue.writable() = picture(n);
    queue.writable().segment = n / 20;  // so that some frames have no target
    queue.push();
  }
  queue.close();
  io::Resizer resizer(16, 12);
  NextFrameFeed stream(queue, resizer, {}, GetParam(), trainer.schedule().slots());
  ReplayFeed feed(trainer, stream, false,
                  {.kind = ReplayKind::reservoir, .places = 10, .share = 0.5, .seed = 5});
  Seen seen;
  seen.look = [&](engine::Sample& sample) {
    const engine::SampleInfo& info = sample.info;
    if (!info.has_target) {
      EXPECT_EQ(info.frame % 20, 19);
      return;
    }
    const auto equal = [](std::span<const float> got, std::int64_t n) {
      return std::equal(got.begin(), got.end(), floats_of(n).const_data_ptr<float>());
    };
    EXPECT_TRUE(equal(sample.shown_input(), info.frame)) << info.frame;
    EXPECT_TRUE(equal(sample.shown_target(), info.frame + 1)) << info.frame;
  };
  Observers observers;
  observers.add_for_all(&feed);
  observers.add_for_all(&seen);
  const engine::Outcome outcome = trainer.run(feed, &observers);
  EXPECT_EQ(outcome.trained, 57);
  EXPECT_EQ(outcome.without_target, GetParam() ? 3 : 0);
  EXPECT_GT(outcome.replayed, 30);
}

INSTANTIATE_TEST_SUITE_P(Late, PairsComeWhole, testing::Bool());

/// A live stream whose frames, one in ten seconds, the test pushes.
class Live : public testing::Test {
 protected:
  static constexpr std::chrono::seconds kPeriod{10};

  explicit Live(bool late_targets = false) : trainer_(options(late_targets)) {
    trainer_.monitor().set_fps(1.0 / double(kPeriod.count()));
  }
  void push(engine::Clock::time_point captured = engine::Clock::now()) {
    queue_.writable() = picture(next_++);
    queue_.writable().captured = captured;
    queue_.push();
  }
  engine::Sample& take() {
    engine::Sample& sample = trainer_.in_slot(taken_++ % trainer_.schedule().slots());
    feed_.take(sample);
    return sample;
  }
  /// Acts as a pipeline that holds one sample at a time and takes no time.
  engine::SampleInfo pass() {
    engine::Sample& sample = take();
    sample.info.predicted = engine::Clock::now() + 1ms;
    feed_.shown(sample);
    feed_.predicted(sample, 1);
    return sample.info;
  }
  /// Ten frames, the last one now.
  void pass_fresh() {
    for (int n = 9; n >= 0; --n) {
      push(engine::Clock::now() - n * kPeriod);
      ASSERT_EQ(feed_.poll(0us), Feed::Status::ready);
      EXPECT_FALSE(pass().replayed);
    }
  }

  static engine::TrainerOptions options(bool late_targets) {
    engine::TrainerOptions options = engine::small("partime", 2, {3});
    options.late_targets = late_targets;
    return options;
  }

  engine::Trainer trainer_;
  io::FrameQueue queue_{8, io::Drop::never};
  io::Resizer resizer_{16, 12};
  FrameFeed stream_{queue_, resizer_, TargetFrom::input};
  ReplayFeed feed_{
      trainer_, stream_, true, {.kind = ReplayKind::recent, .places = 20, .share = -1}};
  std::int64_t next_ = 0;
  int taken_ = 0;
};

TEST_F(Live, ReplaysWhileTheStreamLeavesTimeAndAFrameThatWaitsGoesFirst) {
  pass_fresh();
  for (int n = 0; n < 5; ++n) {
    ASSERT_EQ(feed_.poll(0us), Feed::Status::ready);
    EXPECT_TRUE(pass().replayed);
  }
  for (int n = 0; n < 5; ++n) push();
  for (int n = 0; n < 5; ++n) {
    ASSERT_EQ(feed_.poll(0us), Feed::Status::ready);
    EXPECT_FALSE(pass().replayed) << "a fresh frame waited";
  }
  EXPECT_EQ(feed_.fresh(19), 15) << "they are counted apart";
  EXPECT_EQ(feed_.fresh(14), 10);
}

TEST_F(Live, NothingIsReplayedThatWouldTakeTooLong) {
  trainer_.monitor().meter(1).record(std::chrono::nanoseconds(2 * kPeriod).count(), 0);
  pass_fresh();
  EXPECT_EQ(feed_.poll(0us), Feed::Status::wait);
}

TEST_F(Live, NothingIsReplayedIfFramesMayComeEarly) {
  for (int n = 9; n >= 0; --n) {  // as often half a period early as late
    push(engine::Clock::now() - n * kPeriod - (n % 2) * kPeriod / 2);
    ASSERT_EQ(feed_.poll(0us), Feed::Status::ready);
    pass();
  }
  EXPECT_EQ(feed_.poll(0us), Feed::Status::wait);
}

TEST_F(Live, NothingIsReplayedWhileAFrameIsOverdueWithoutARateOrDuringAPause) {
  pass_fresh();
  trainer_.monitor().set_fps(1000);
  std::this_thread::sleep_for(2ms);
  EXPECT_EQ(feed_.poll(0us), Feed::Status::wait) << "a frame is overdue";
  trainer_.monitor().set_fps(0);
  EXPECT_EQ(feed_.poll(0us), Feed::Status::wait) << "no rate";
  trainer_.monitor().set_fps(1.0 / double(kPeriod.count()));
  ASSERT_EQ(feed_.poll(0us), Feed::Status::ready);
  stream_.rest_while([] { return true; });
  EXPECT_EQ(feed_.poll(0us), Feed::Status::wait) << "a pause";
}

TEST_F(Live, TheLatestFrameIsPredictedBeforeAnythingIsReplayed) {
  pass_fresh();
  push();
  ASSERT_EQ(feed_.poll(0us), Feed::Status::ready);
  engine::Sample& sample = take();
  EXPECT_EQ(feed_.poll(0us), Feed::Status::wait);
  sample.info.predicted = engine::Clock::now();
  feed_.shown(sample);
  ASSERT_EQ(feed_.poll(0us), Feed::Status::ready);
  EXPECT_TRUE(pass().replayed);
}

class LiveNextFrame : public Live {
 protected:
  LiveNextFrame() : Live(true) {}
};

TEST_F(LiveNextFrame, SamplesAreReplayedWhenAFrameHasComeForHalfOfItsTime) {
  trainer_.monitor().set_fps(0);  // nothing is replayed meanwhile
  pass_fresh();
  trainer_.monitor().set_fps(1.0 / double(kPeriod.count()));
  EXPECT_EQ(feed_.poll(0us), Feed::Status::wait) << "the latest frame waits for its target";
  push();
  for (int n = 0; n < 5; ++n) {
    ASSERT_EQ(feed_.poll(0us), Feed::Status::ready);
    EXPECT_TRUE(pass().replayed);
  }
  trainer_.monitor().set_fps(1000);
  std::this_thread::sleep_for(2ms);
  ASSERT_EQ(feed_.poll(0us), Feed::Status::ready);
  EXPECT_FALSE(pass().replayed);
}

TEST(ReplayKind, TheDefaultIsNoneWithRanksAndAnyOtherIsRefused) {
  RunOptions with_ranks;
  engine::ThreadExchange ranks(std::make_shared<engine::Sea>(), 0, 2);
  with_ranks.ranks = &ranks;
  const Config config = parse_config("pipeline.stages = 2", "two.toml", {});
  EXPECT_EQ(Request(config, {}).config.replay.kind, "auto");
  EXPECT_EQ(Request(config, with_ranks).config.replay.kind, "none");
  Config replays = config;
  replays.replay.kind = "reservoir";
  EXPECT_THROW(Request(replays, with_ranks), ConfigError);
}

}  // namespace
}  // namespace millrace::app
