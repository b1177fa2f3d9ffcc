#include "engine/pipeline/loss_guard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

namespace millrace::engine {
namespace {

constexpr SceneErrors kCalm{0.001f, 0.001f}, kNew{0.1f, 0.1f};

struct Stream {
  LossGuard guard{4};
  std::int64_t sample = 0;

  Alarm judge(float loss, SceneErrors scene = kCalm) {
    return guard.judge({.sample = sample++, .frame = 1000 + sample, .scene = scene}, loss);
  }
  /// The first alarm among `count` losses.
  Alarm feed(int count, float loss, SceneErrors scene = kCalm) {
    Alarm first = Alarm::none;
    for (int i = 0; i < count; ++i) {
      const Alarm alarm = judge(loss, scene);
      if (first == Alarm::none) first = alarm;
    }
    return first;
  }
};

TEST(LossGuard, TurnsBackFromWhatIsNoNumber) {
  Stream stream;
  EXPECT_EQ(stream.feed(30, 0.1f), Alarm::none);
  const float none = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(stream.judge(none), Alarm::discard);
  EXPECT_EQ(stream.judge(none), Alarm::roll_back);
  EXPECT_EQ(stream.guard.status().last_frame, 1034);
  for (int i = 0; i < 4 + LossGuard::kProbe; ++i) EXPECT_EQ(stream.judge(0.1f), Alarm::discard);
  EXPECT_EQ(stream.feed(30, 0.1f), Alarm::none);
  EXPECT_EQ(stream.guard.roll_backs(), 1);
}

TEST(LossGuard, GivesUpWhereNoLossWasEverANumber) {
  Stream stream;
  const float none = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(stream.feed(3, none), Alarm::discard);
  EXPECT_THROW(stream.judge(none), std::runtime_error);
  EXPECT_EQ(stream.guard.roll_backs(), 0);
}

TEST(LossGuard, AFrameWithoutNumbersNowAndThenCostsItselfAlone) {
  Stream stream;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(stream.feed(20, 0.1f), Alarm::none);
    EXPECT_EQ(stream.judge(std::numeric_limits<float>::infinity()), Alarm::discard);
  }
  EXPECT_EQ(stream.guard.roll_backs(), 0);
}

TEST(LossGuard, TellsANewSceneFromDivergence) {
  Stream stream;
  stream.feed(300, 0.002f);
  EXPECT_EQ(stream.judge(0.9f), Alarm::none) << "one flash";
  stream.feed(20, 0.002f);
  EXPECT_EQ(stream.feed(500, 0.05f, kNew), Alarm::none) << "the mean frame is as wrong";
  EXPECT_EQ(stream.feed(300, 0.04f, kNew), Alarm::none);
  EXPECT_EQ(stream.feed(300, 0.002f), Alarm::none);
  EXPECT_EQ(stream.feed(10, 0.04f), Alarm::roll_back) << "in a scene that has not changed";
  EXPECT_NEAR(stream.guard.status().last_median, 0.002, 1e-6);
  EXPECT_TRUE(stream.guard.status().astray);
}

TEST(LossGuard, CountsTheRollBackThatTheEndOfARunBrings) {
  Stream stream;
  stream.feed(300, 0.002f);
  EXPECT_FALSE(stream.guard.end());
  EXPECT_EQ(stream.feed(3, 0.3f), Alarm::none);
  EXPECT_TRUE(stream.guard.end());
  const LossGuard::Status status = stream.guard.status();
  EXPECT_EQ(status.roll_backs, 1);
  EXPECT_EQ(status.last_frame, 1303);
  EXPECT_NEAR(status.last_loss, 0.3, 1e-6);
  EXPECT_NEAR(status.last_median, 0.002, 1e-6);
  EXPECT_FALSE(stream.guard.end()) << "the weights are good again";
  EXPECT_EQ(stream.feed(LossGuard::kProbe, 0.002f), Alarm::discard) << "the next run tries them";
  EXPECT_EQ(stream.feed(300, 0.002f), Alarm::none);
  EXPECT_EQ(stream.feed(10, 0.3f), Alarm::roll_back);
  EXPECT_TRUE(stream.guard.end());
  EXPECT_EQ(stream.guard.roll_backs(), 2) << "that one was counted";
}

TEST(LossGuard, TellsASceneThatMovesMoreFromDivergence) {
  constexpr SceneErrors kStill{0.1f, 0.1f, 0.001f}, kFast{0.1f, 0.1f, 0.02f};
  Stream stream;
  stream.feed(300, 0.001f, kStill);
  EXPECT_EQ(stream.feed(100, 0.015f, kFast), Alarm::none) << "the mean frame is always as wrong";
  stream.feed(300, 0.001f, kStill);
  EXPECT_EQ(stream.feed(10, 0.3f, kFast), Alarm::roll_back) << "far above what moves";
}

TEST(SceneWatch, AChangeOfSceneShowsInFramesThatComeTwice) {
  SceneWatch watch;
  std::vector<float> frame(100);
  float change = 0;
  const auto see = [&](float step, int count) {
    for (int i = 0; i < count; ++i) {
      if (i % 2 == 0) frame.assign(100, frame[0] + (i % 4 == 0 ? step : -step));
      change = watch.see(frame, {}).change;
    }
  };
  see(0.1f, 40);
  EXPECT_NEAR(change, 0.01f * 0.9f, 1e-4f);
  see(0.4f, 10);
  EXPECT_NEAR(change, 0.16f * 0.9f, 1e-3f);
}

TEST(SceneWatch, TheErrorOfClassesIsACrossEntropy) {
  SceneWatch watch(/*classes=*/true);
  float error = 0;
  for (int n = 0; n < 300; ++n) {
    std::vector<float> target(3, 0);
    target[std::size_t(n / 10 % 3)] = 1;
    error = watch.see(std::vector<float>(8), target).target;
    if (n == 9) {
      EXPECT_LT(error, 0.1f) << "one class so far";
    } else if (n == 10) {
      EXPECT_NEAR(error, std::log(11 / 0.5), 1e-3) << "its first change";
    }
  }
  EXPECT_NEAR(error, std::log(3.0), 0.15);
}

/// A rate far too high for a while: each roll-back is judged by the losses before the first.
TEST(LossGuard, ABadLossNeverBecomesTheMeasure) {
  Stream stream;
  stream.feed(300, 0.002f);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(stream.feed(10, 0.3f), Alarm::roll_back) << i;
    // Samples in flight, and those that test the restored weights.
    while (stream.guard.state().discard_until > stream.sample) stream.judge(0.002f);
  }
  EXPECT_EQ(stream.feed(300, 0.002f), Alarm::none);
  EXPECT_FALSE(stream.guard.status().astray);
}

TEST(LossGuard, TakesALossForTheScenesIfGoodWeightsShowIt) {
  Stream stream;
  stream.feed(300, 0.002f);
  EXPECT_EQ(stream.feed(10, 0.3f), Alarm::roll_back);
  while (stream.guard.state().discard_until > stream.sample) stream.judge(0.3f);
  EXPECT_EQ(stream.feed(1000, 0.3f), Alarm::none);
}

TEST(LossGuard, SeesARateThatIsFarTooHighFromTheStart) {
  Stream stream;
  stream.judge(0.06f);
  EXPECT_EQ(stream.feed(9, 0.3f), Alarm::roll_back);
  Stream slow;
  EXPECT_EQ(slow.feed(1000, 0.06f), Alarm::none) << "it learns nothing, but does no harm";
}

TEST(LossGuard, LeavesLossesAloneThatCannotMatter) {
  Stream classes;  // a cross-entropy that is usually close to 0
  classes.judge(0.7f);
  classes.feed(300, 1e-7f);
  EXPECT_EQ(classes.feed(300, 1e-5f), Alarm::none);
  EXPECT_EQ(classes.feed(100, 5e-3f), Alarm::none) << "still a hundredth of the first loss";
  EXPECT_EQ(classes.feed(10, 0.1f), Alarm::roll_back);
}

TEST(LossGuard, WeightsProveGoodByWhatTheyLose) {
  Stream stream;
  stream.feed(300, 0.002f);
  const LossGuard::Status then = stream.guard.status();
  stream.feed(5, 0.002f);
  EXPECT_FALSE(stream.guard.proved(then));
  stream.feed(14, 0.002f);
  EXPECT_TRUE(stream.guard.proved(then));
  stream.feed(10, 0.3f);
  EXPECT_TRUE(stream.guard.disproved(then));
  EXPECT_FALSE(stream.guard.proved(then));
}

}  // namespace
}  // namespace millrace::engine
