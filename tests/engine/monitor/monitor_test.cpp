#include "engine/monitor/monitor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/monitor/loss_history.h"

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;
using Part = StageMeter::Part;

/// `steps` steps of a stage: hand-off, waiting and compute of the given lengths.
void play(StageMeter& meter, int steps, Clock::duration handoff, Clock::duration waiting,
          Clock::duration compute) {
  Clock::time_point now{};
  for (int i = 0; i < steps; ++i) {
    meter.begin(now);
    meter.lap(Part::handoff, now += handoff);
    meter.lap(Part::waiting, now += waiting);
    meter.lap(Part::compute, now += compute);
  }
  meter.finish();
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
  h += before;
  EXPECT_EQ(h.count(), 1010);
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

TEST(LossHistory, KeepsWhatTheReportNeeds) {
  LossHistory h;
  for (int i = 1; i <= 300; ++i) h.add(float(i));
  EXPECT_EQ(h.count(), 300);
  EXPECT_EQ(h.first(), 1);
  EXPECT_EQ(h.last(), 300);
  EXPECT_DOUBLE_EQ(h.mean(), 150.5);
  EXPECT_DOUBLE_EQ(h.recent(), 250.5);
  EXPECT_EQ(h.curve().size(), 300u);
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

TEST(Downsampled, AveragesNeighbours) {
  Downsampled<2> history(4);
  for (int i = 0; i < 10; ++i) history.add({double(i), 1.0});
  // Full at 4 points of one, then at 4 of two; from then on points of four.
  ASSERT_EQ(history.points().size(), 2u);
  EXPECT_EQ(history.width(), 4u);
  EXPECT_DOUBLE_EQ(history.points()[0][0], 1.5);
  EXPECT_DOUBLE_EQ(history.points()[1][0], 5.5);
  EXPECT_DOUBLE_EQ(history.points()[1][1], 1.0);
}

}  // namespace
}  // namespace millrace::engine
