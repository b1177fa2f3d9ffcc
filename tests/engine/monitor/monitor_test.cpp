#include "engine/monitor/monitor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/monitor/loss_history.h"
#include "engine/monitor/real_time.h"

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;
using Part = StageMeter::Part;

/// `steps` steps of a stage: hand-off, waiting and compute of the given lengths.
void play(StageMeter& meter, int steps, Clock::duration handoff, Clock::duration waiting,
          Clock::duration compute) {
  Clock::time_point now{};
  for (int i = 0; i < steps; ++i) {
    meter.begin(now, 1);
    meter.lap(Part::handoff, now += handoff);
    meter.lap(Part::waiting, now += waiting);
    meter.lap(Part::compute, now += compute);
  }
  meter.finish();
}

TEST(StageMeter, SamplesOfAMinibatchShareItsTime) {
  StageMeter meter;
  Clock::time_point now{};
  for (int minibatch = 0; minibatch < 3; ++minibatch) {
    for (int sample = 0; sample < 4; ++sample) {  // forwards, then all backwards
      meter.begin(now, 4);
      meter.lap(Part::compute, now += 1ms);
    }
    meter.lap(Part::compute, now += 16ms);
    meter.lap(Part::handoff, now += 2ms);
  }
  meter.finish();
  EXPECT_EQ(meter.measured().steps, 12);
  EXPECT_NEAR(meter.measured().compute.median_ms(), 5, 0.1);
  EXPECT_NEAR(meter.measured().handoff.median_ms(), 0.5, 0.01);
  EXPECT_EQ(meter.measured().busy_ns, 66'000'000);
}

TEST(Histogram, PercentilesSumsAndDifferences) {
  Histogram h;
  for (int ms = 1; ms <= 1000; ++ms) h.record(ms * 1'000'000);
  EXPECT_NEAR(h.median_ms(), 500, 5);
  EXPECT_NEAR(h.quantile_ms(0.99), 990, 10);
  EXPECT_NEAR(h.sum() * 1e-9, 500.5, 1e-9);
  const Histogram before = h;
  for (int i = 0; i < 10; ++i) h.record(3'000'000'000);
  EXPECT_EQ(before.count(), 1000);
  h -= before;
  EXPECT_EQ(h.count(), 10);
  EXPECT_NEAR(h.sum() * 1e-9, 30, 1e-9);
  EXPECT_NEAR(h.median_ms(), 3000, 30);
  EXPECT_EQ(h.max_ms(), 3000);
}

TEST(Histogram, CountsWhatTookAtMostSoLong) {
  Histogram h;
  for (const std::int64_t ns : {-1, 0, 1, 1'000, 1'030, 2'000, 2'100, 1'000'000'000}) h.record(ns);
  EXPECT_EQ(h.at_most(1'024), 4);
  EXPECT_EQ(h.at_most(2'048), 6);
  EXPECT_EQ(h.at_most(268e9), 8);
  h.record(INT64_MAX);
  EXPECT_EQ(h.count(), 9);
  EXPECT_EQ(Histogram().median_ms(), 0.0);
}

TEST(Monitor, VerdictIsTheSlowestStageWithItsHandOff) {
  Monitor monitor({1, 1}, 100.0);  // budget 10 ms
  play(monitor.meter(0), 50, 100us, 3ms, 2ms);
  play(monitor.meter(1), 50, 1ms, 0ms,
       9500us);  // 9.5 ms alone would hold; with its hand-off it does not
  const Reading r = monitor.read();
  EXPECT_NEAR(r.stage[0], 2.0, 0.02);
  EXPECT_NEAR(r.stage[1], 9.5, 0.1);
  EXPECT_NEAR(r.T, 11.5, 0.1);
  EXPECT_NEAR(r.T_over_N, 5.75, 0.05);
  EXPECT_LT(r.T_over_N, r.budget);
  EXPECT_NEAR(r.bottleneck, 10.5, 0.1);
  EXPECT_EQ(r.bottleneck_stage, 1);
  EXPECT_FALSE(r.holds);
  EXPECT_EQ(r.misses, (std::vector<std::int64_t>{0, 50}));
  Monitor waits({1}, 100.0);
  play(waits.meter(0), 20, 0ms, 500ms, 1ms);
  EXPECT_TRUE(waits.read().holds) << "waiting costs nobody";
  EXPECT_NEAR(waits.read().bottleneck, 1.0, 0.01);
}

TEST(Monitor, WaitingForATargetMakesNoFrameLate) {
  // Next-frame with a loss at stage 0: the target of each frame is the next one, 100 ms later.
  Monitor monitor({1}, 10.0);
  Clock::time_point now{1s};
  for (int i = 0; i < 11; ++i) {
    monitor.admitted(now, now);
    monitor.paused(70ms);
    now += 100ms;
  }
  EXPECT_EQ(monitor.totals().frames, 10);
  EXPECT_EQ(monitor.totals().frames_ns, 10 * 30'000'000);
}

TEST(Monitor, LatencyPeriodAndSpeedUp) {
  Monitor monitor({1, 1}, 0.0);
  play(monitor.meter(0), 10, 0ms, 0ms, 4ms);
  play(monitor.meter(1), 10, 0ms, 0ms, 4ms);
  Clock::time_point now{};
  for (int i = 0; i < 11; ++i) monitor.predicted(now - 7ms, now), now += 4ms;
  const Reading r = monitor.read();
  EXPECT_NEAR(r.latency_p50, 7.0, 0.06);
  EXPECT_NEAR(r.latency_max, 7.0, 1e-9);
  EXPECT_NEAR(r.step_p50, 4.0, 0.04);
  EXPECT_NEAR(r.speedup_K, 2.0, 0.04);
  EXPECT_EQ(r.budget, 0.0);
  EXPECT_TRUE(r.holds);
}

TEST(LossHistory, ThinsTheCurveAndKeepsItsMean) {
  LossHistory h;
  const int samples = 3 * int(LossHistory::kPoints) + 4;
  for (int i = 0; i < samples; ++i) h.add(float(i));
  const auto curve = h.curve();
  EXPECT_LE(curve.size(), LossHistory::kPoints);
  for (const auto& [x, y] : curve) EXPECT_NEAR(x, y, 1e-6);  // the loss of sample i was i
}

TEST(LossHistory, ForgetsANanAfterAWhile) {
  LossHistory h;
  h.add(std::nanf(""));
  EXPECT_TRUE(std::isnan(h.recent()));
  for (int i = 0; i < 100; ++i) h.add(1.0f);
  EXPECT_EQ(h.recent(), 1.0);
  EXPECT_EQ(h.not_finite(), 1);
}

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

TEST(RealTime, WhatIsDroppedInAPauseDoesNotCount) {
  RealTime real_time;
  Clock::time_point now{};
  real_time.note({.received = 5, .trained = 5}, false, now);
  for (int second = 1; second < 30; ++second)
    real_time.pause({.received = 5 + second, .trained = 5, .dropped = second}, now += 1s);
  real_time.note({.received = 35, .trained = 5, .dropped = 30}, false, now += 500ms);
  real_time.note({.received = 38, .trained = 7, .dropped = 31}, false, now += 500ms);
  const Verdict verdict = real_time.verdict(reading(1, 25));
  EXPECT_TRUE(verdict.holds) << verdict.reason;
  EXPECT_EQ(verdict.window.trained, 2);
  real_time.note({.received = 40, .trained = 8, .dropped = 32}, false, now += 1s);
  EXPECT_FALSE(real_time.verdict(reading(1, 25)).holds);
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
  real_time.note({.received = 11, .trained = 6, .dropped = 5}, false, now += 1s);
  EXPECT_EQ(real_time.verdict(reading(1, 25)).window.dropped, 0) << "while the pipeline filled";
  for (int second = 2; second <= 12; ++second)
    real_time.note({.received = 10 + second, .trained = 5 + second, .dropped = 5}, false,
                   now += 1s);
  const Verdict verdict = real_time.verdict(reading(1, 25));
  EXPECT_EQ(verdict.window.dropped, 0);
  EXPECT_TRUE(verdict.holds);
  EXPECT_NEAR(verdict.window_s, 10, 1);
}

}  // namespace
}  // namespace millrace::engine
