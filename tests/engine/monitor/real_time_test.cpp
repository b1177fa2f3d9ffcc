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
  const auto of = [](const FrameCounts& window, double ms = 25, bool late = false,
                     double fps = 25) { return judge(reading(ms, fps), window, 10, late); };
  const Verdict all = of({.received = 250, .trained = 250});
  EXPECT_TRUE(all.judged && all.holds);
  EXPECT_NE(all.reason.find("every frame"), std::string::npos) << all.reason;
  const Verdict predicted =
      of({.received = 300, .trained = 100, .dropped = 200, .predicted_only = 190});
  EXPECT_FALSE(predicted.holds);
  EXPECT_EQ(predicted.reason,
            "of 300 frames in the last 10 s 10 dropped, 190 predicted and not learned from");
  EXPECT_FALSE(of({.trained = 10}, 41).holds);
  EXPECT_FALSE(of({.trained = 10}, 39, true).holds);
  EXPECT_FALSE(of({.dropped = 5}, 25, false, 0).judged) << "without a rate";
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

TEST(RealTime, NothingHoldsBeforeAFrameOrOnceNoneComes) {
  RealTime real_time;
  Clock::time_point now{};
  EXPECT_FALSE(real_time.verdict(reading(1, 25)).holds);
  real_time.note({.received = 1}, false, now);
  EXPECT_FALSE(real_time.verdict(reading(1, 25)).holds || real_time.began());
  EXPECT_EQ(real_time.verdict(reading(1, 25)).reason, "no frame was learned from yet");
  real_time.note({.received = 2, .trained = 2}, false, now += 1s);
  EXPECT_TRUE(real_time.verdict(reading(1, 25)).holds && real_time.began());
  EXPECT_EQ(real_time.verdict(reading(1, 25)).window.trained, 2);
  for (int second = 0; second < 5; ++second)
    real_time.note({.received = 2, .trained = 2}, false, now += 1s);
  EXPECT_TRUE(real_time.verdict(reading(1, 0.5)).holds) << "one frame in two seconds";
  const Verdict verdict = real_time.verdict(reading(1, 25));
  EXPECT_FALSE(verdict.judged || verdict.holds);
  EXPECT_NE(verdict.reason.find("no frame was learned from"), std::string::npos) << verdict.reason;
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
