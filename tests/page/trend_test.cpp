#include "tools/page/trend.h"

#include <gtest/gtest.h>

namespace millrace::page {
namespace {

using std::chrono::milliseconds;

/// A run of 20 frames a second, looked at four times a second.
class Looks {
 public:
  const Live& look(int times) {
    for (int i = 0; i < times; ++i) {
      now_ += milliseconds(250);
      if (!rests) add_frames();
      trend.add(snapshot, now_);
    }
    return trend.live();
  }
  double number(const char* where) const { return number_at(trend.live().now.state, where); }
  Trend trend;
  Snapshot snapshot;
  double step = 0.025;  ///< seconds of a stage
  bool rests = false;

 private:
  void add_frames() {
    snapshot.busy.resize(1);
    snapshot.frames.trained += 5;
    snapshot.frames.dropped += 1;
    for (int i = 0; i < 5; ++i) {
      snapshot.busy[0].record(std::int64_t(1e9 * step));
      snapshot.latency.record(std::int64_t(2e9 * step));
    }
  }
  Clock::time_point now_{};
};

TEST(Trend, RatesAndLoadsAreOfTheLastSeconds) {
  Looks looks;
  const Live& live = looks.look(20);
  EXPECT_NEAR(looks.number("/rate/fps"), 20, 0.01);
  EXPECT_NEAR(looks.number("/rate/dropped_fps"), 4, 0.01);
  EXPECT_NEAR(looks.number("/stages/0/load"), 0.5, 0.01);
  EXPECT_EQ(live.still_s, 0);
  looks.step = 0.05;
  looks.look(9);
  EXPECT_NEAR(looks.number("/stages/0/load"), 1.0, 0.01);
  looks.rests = true;
  looks.look(12);
  EXPECT_EQ(looks.number("/rate/fps"), 0);
  EXPECT_EQ(looks.number("/stages/0/load"), 0);
  EXPECT_NEAR(live.still_s, 3, 0.01);
}

TEST(Trend, PercentilesForgetWhatIsLongAgo) {
  Looks looks;
  looks.look(40);
  EXPECT_NEAR(looks.number("/latency_ms/recent_p99"), 50, 2);
  looks.step = 0.005;
  looks.look(44);
  EXPECT_NEAR(looks.number("/latency_ms/recent_p99"), 10, 0.5);
}

TEST(Trend, NoEventFallsBetweenTwoPoints) {
  Looks looks;
  Json& novelty = looks.snapshot.state["novelty"] = {{"events", 0}, {"deviation", 1.0}};
  looks.look(8);
  EXPECT_EQ(looks.trend.recent().back().back(), 1);
  novelty["events"] = 1;
  novelty["last"]["deviation"] = 9.0;
  looks.look(4);
  EXPECT_EQ(looks.trend.recent().back().back(), 9);
  EXPECT_EQ(looks.trend.live().now.state["point"].back(), 9);
  looks.look(4);
  EXPECT_EQ(looks.trend.recent().back().back(), 1);
}

TEST(Trend, FramesWithoutATargetAreCountedToo) {
  Looks looks;
  looks.look(8);
  looks.rests = true;
  for (int i = 0; i < 12; ++i) {
    looks.snapshot.frames.without_target += 5;
    looks.look(1);
  }
  EXPECT_EQ(looks.number("/rate/fps"), 0);
  EXPECT_NEAR(looks.number("/rate/predicted_fps"), 20, 0.01);
  EXPECT_FALSE(looks.trend.live().stalled);
}

TEST(Trend, CountsFramesSinceTheSourceCameBack) {
  Looks looks;
  looks.snapshot.state["stream"]["reconnects"] = 3;  // before the first snapshot
  looks.look(8);
  EXPECT_EQ(looks.number("/frames/trained_since_reconnect"), 40);
  looks.snapshot.state["stream"]["reconnects"] = 4;
  looks.look(1);
  EXPECT_EQ(looks.number("/frames/trained_since_reconnect"), 0);
  looks.look(2);
  EXPECT_EQ(looks.number("/frames/trained_since_reconnect"), 10);
}

TEST(Trend, RemembersFiveMinutesByTheSecondAndTheWholeRunInBoundedMemory) {
  Looks looks;
  looks.look(4 * 3600);
  EXPECT_EQ(looks.trend.recent().size(), 300u);
  EXPECT_NEAR(looks.trend.recent().back()[0] - looks.trend.recent().front()[0], 299, 0.01);
  const std::vector<TrendPoint>& whole = looks.trend.whole();
  EXPECT_GE(whole.size(), 300u);
  EXPECT_LT(whole.size(), 600u);
  EXPECT_LT(whole.front()[0], 20);
  EXPECT_GT(whole.back()[0], 3600 - 20);
}

}  // namespace
}  // namespace millrace::page
