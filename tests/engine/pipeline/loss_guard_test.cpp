#include "engine/pipeline/loss_guard.h"

#include <gtest/gtest.h>

#include <limits>

namespace millrace::engine {
namespace {

/// Feeds `count` losses of `loss`; the first alarm among them.
Alarm feed(LossGuard& guard, std::int64_t& sample, int count, float loss) {
  Alarm first = Alarm::none;
  for (int i = 0; i < count; ++i) {
    const Alarm alarm = guard.judge(sample++, loss);
    if (first == Alarm::none) first = alarm;
  }
  return first;
}

TEST(LossGuard, TurnsBackFromWhatIsNoNumber) {
  LossGuard guard(4);
  std::int64_t sample = 0;
  EXPECT_EQ(feed(guard, sample, 30, 0.1f), Alarm::none);
  const float none = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(guard.judge(sample++, none), Alarm::discard);
  EXPECT_EQ(guard.judge(sample++, none), Alarm::roll_back);
  EXPECT_EQ(guard.last_sample(), 33);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(guard.judge(sample++, 0.1f), Alarm::discard);
  EXPECT_EQ(feed(guard, sample, 30, 0.1f), Alarm::none);
  EXPECT_EQ(guard.roll_backs(), 1);
}

TEST(LossGuard, AFrameWithoutNumbersNowAndThenCostsItselfAlone) {
  LossGuard guard(4);
  std::int64_t sample = 0;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(feed(guard, sample, 20, 0.1f), Alarm::none);
    EXPECT_EQ(guard.judge(sample++, std::numeric_limits<float>::infinity()), Alarm::discard);
  }
  EXPECT_EQ(guard.roll_backs(), 0);
}

TEST(LossGuard, TurnsBackFromALossFarAboveItsMedianAndAboveTheBeginning) {
  LossGuard guard(4);
  std::int64_t sample = 0;
  feed(guard, sample, 10, 0.05f);
  EXPECT_EQ(feed(guard, sample, 300, 0.002f), Alarm::none);
  EXPECT_EQ(feed(guard, sample, 40, 0.04f), Alarm::none) << "a new scene: not worse than untrained";
  feed(guard, sample, 300, 0.002f);
  EXPECT_EQ(feed(guard, sample, 10, 0.3f), Alarm::roll_back);
  EXPECT_NEAR(guard.last_median(), 0.002, 1e-6);
}

TEST(LossGuard, LeavesALossAloneThatNeverWasBetter) {
  LossGuard guard(4);
  std::int64_t sample = 0;
  feed(guard, sample, 300, 0.05f);
  EXPECT_EQ(feed(guard, sample, 300, 0.2f), Alarm::none);
}

}  // namespace
}  // namespace millrace::engine
