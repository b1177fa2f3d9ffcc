// Real time holds only if every frame of the window was trained on in time.
#include "engine/monitor/real_time.h"

#include <gtest/gtest.h>

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;

Reading reading(double bottleneck_ms, double fps) {
  Reading r;
  r.bottleneck = bottleneck_ms;
  r.F = fps;
  r.budget = fps > 0 ? 1e3 / fps : 0;
  r.holds = r.budget == 0 || bottleneck_ms <= r.budget;
  return r;
}

TEST(RealTime, HoldsWhenEveryFrameWasLearnedFromAndStagesMeetTheBudget) {
  const Verdict verdict = judge(reading(25, 25), {.received = 250, .trained = 250}, 10, false);
  EXPECT_TRUE(verdict.judged && verdict.holds);
  EXPECT_NE(verdict.reason.find("every frame"), std::string::npos) << verdict.reason;
}

TEST(RealTime, FailsByOneDroppedFrame) {
  const FrameCounts window{.received = 251, .trained = 250, .dropped = 1};
  const Verdict verdict = judge(reading(25, 25), window, 10, false);
  EXPECT_FALSE(verdict.holds);
  EXPECT_EQ(verdict.reason, "of 251 frames in the last 10 s 1 dropped");
}

TEST(RealTime, FailsByFramesThatWerePredictedOnly) {
  const FrameCounts window{.received = 300, .trained = 100, .dropped = 200, .predicted_only = 190};
  const Verdict verdict = judge(reading(25, 25), window, 10, false);
  EXPECT_FALSE(verdict.holds);
  EXPECT_EQ(verdict.reason,
            "of 300 frames in the last 10 s 10 dropped, 190 predicted and not learned from");
}

TEST(RealTime, FailsByASlowStageAndWhileLate) {
  EXPECT_FALSE(judge(reading(41, 25), {.trained = 10}, 1, false).holds);
  EXPECT_FALSE(judge(reading(39, 25), {.trained = 10}, 1, true).holds);
}

TEST(RealTime, TheLineOfProgressTellsWhatTheFiguresDoNot) {
  const auto line = [](double ms, std::int64_t dropped) {
    const Reading r = reading(ms, 25);
    return rule_text(r, judge(r, {.trained = 250, .dropped = dropped}, 10, false));
  };
  EXPECT_TRUE(line(25, 0).ends_with("slowest stage 25 ms of 1/F 40 ms: HOLDS")) << line(25, 0);
  EXPECT_TRUE(line(41, 0).ends_with("slowest stage 41 ms of 1/F 40 ms: FAILS")) << line(41, 0);
  EXPECT_TRUE(line(25, 1).ends_with(": FAILS (of 251 frames in the last 10 s 1 dropped)"))
      << line(25, 1);
}

TEST(RealTime, WithoutARateThereIsNoVerdict) {
  const Verdict verdict = judge(reading(25, 0), {.dropped = 5}, 1, false);
  EXPECT_FALSE(verdict.judged);
}

TEST(RealTime, NothingHoldsBeforeAFrameOrOnceNoneComes) {
  RealTime real_time;
  Clock::time_point now{};
  EXPECT_FALSE(real_time.verdict(reading(1, 25)).holds);
  real_time.note({.received = 1}, false, now);
  EXPECT_FALSE(real_time.verdict(reading(1, 25)).holds);
  real_time.note({.received = 2, .trained = 2}, false, now += 1s);
  EXPECT_TRUE(real_time.verdict(reading(1, 25)).holds);
  for (int second = 0; second < 5; ++second)
    real_time.note({.received = 2, .trained = 2}, false, now += 1s);
  EXPECT_TRUE(real_time.verdict(reading(1, 0.5)).holds) << "one frame in two seconds";
  const Verdict verdict = real_time.verdict(reading(1, 25));
  EXPECT_FALSE(verdict.judged || verdict.holds);
  EXPECT_NE(verdict.reason.find("no frame was learned from"), std::string::npos) << verdict.reason;
}

TEST(RealTime, BeganWithTheFirstFrameLearnedFrom) {
  RealTime real_time;
  Clock::time_point now{};
  real_time.note({.received = 3}, false, now);
  EXPECT_FALSE(real_time.began());
  EXPECT_EQ(real_time.verdict(reading(1, 25)).reason, "no frame was learned from yet");
  real_time.note({.received = 3, .trained = 3}, false, now += 20ms);
  EXPECT_TRUE(real_time.began());
  EXPECT_EQ(real_time.verdict(reading(1, 25)).window.trained, 3);
}

TEST(RealTime, ForgetsWhatIsOlderThanItsWindowAndWhileThePipelineFilled) {
  RealTime real_time;
  Clock::time_point now{};
  real_time.note({.received = 3, .dropped = 3}, false, now);  // nothing was trained yet
  real_time.note({.received = 10, .trained = 5, .dropped = 5}, false, now += 1s);
  EXPECT_EQ(real_time.verdict(reading(1, 25)).window.dropped, 2);
  for (int second = 1; second <= 12; ++second)
    real_time.note({.received = 10 + second, .trained = 5 + second, .dropped = 5}, false,
                   now += 1s);
  const Verdict verdict = real_time.verdict(reading(1, 25));
  EXPECT_EQ(verdict.window.dropped, 0);
  EXPECT_TRUE(verdict.holds);
  EXPECT_NEAR(verdict.window_s, 10, 1);
}

}  // namespace
}  // namespace millrace::engine
