#include "tools/page/trend.h"

#include <gtest/gtest.h>

namespace millrace::io {
namespace {

using std::chrono::milliseconds;

TEST(Distribution, PercentilesSumsAndDifferences) {
  Distribution d;
  for (int ms = 1; ms <= 1000; ++ms) d.add(ms * 1e-3);
  EXPECT_NEAR(d.quantile(0.5), 0.5, 0.02);
  EXPECT_NEAR(d.quantile(0.99), 0.99, 0.04);
  EXPECT_NEAR(d.sum(), 500.5, 1e-9);
  const Distribution before = d;
  d.add(3.0, 10);
  d -= before;
  EXPECT_EQ(d.total(), 10);
  EXPECT_NEAR(d.quantile(0.5), 3.0, 0.1);
  EXPECT_EQ(Distribution().quantile(0.5), 0.0);
}

TEST(Distribution, BoundsAreCountedWithTheLower) {
  Distribution d;
  for (const double seconds : {-1.0, 0.0, 1e-9, 1e-6, 1.001e-6, 2e-6, 2.1e-6, 1e9}) d.add(seconds);
  EXPECT_EQ(d.at_most(0), 4);
  EXPECT_EQ(d.at_most(1), 6);
  EXPECT_EQ(d.at_most(Distribution::kOctaves), 7);
  EXPECT_EQ(d.total(), 8);
  EXPECT_DOUBLE_EQ(Distribution::bound(10), 1024e-6);
}

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
  Trend trend;
  Snapshot snapshot;
  double step = 0.025;  ///< seconds of a stage
  bool rests = false;

 private:
  void add_frames() {
    snapshot.stages.resize(1);
    snapshot.trained += 5;
    snapshot.dropped += 1;
    for (int i = 0; i < 5; ++i) {
      snapshot.stages[0].busy.add(step);
      snapshot.latency.add(2 * step);
    }
  }
  Clock::time_point now_{};
};

TEST(Trend, RatesAndLoadsAreOfTheLastSeconds) {
  Looks looks;
  const Live& live = looks.look(20);
  EXPECT_NEAR(live.fps, 20, 0.01);
  EXPECT_NEAR(live.dropped_fps, 4, 0.01);
  EXPECT_NEAR(live.load[0], 0.5, 0.01);
  EXPECT_EQ(live.still_s, 0);
  looks.step = 0.05;
  looks.look(9);
  EXPECT_NEAR(live.load[0], 1.0, 0.01);
  looks.rests = true;
  looks.look(12);
  EXPECT_EQ(live.fps, 0);
  EXPECT_EQ(live.load[0], 0);
  EXPECT_NEAR(live.still_s, 3, 0.01);
}

TEST(Trend, PercentilesForgetWhatIsLongAgo) {
  Looks looks;
  looks.look(40);
  EXPECT_NEAR(looks.trend.live().latency_p99, 50, 2);
  looks.step = 0.005;
  looks.look(44);
  EXPECT_NEAR(looks.trend.live().latency_p99, 10, 0.5);
}

TEST(Trend, CountsFramesSinceTheSourceCameBack) {
  Looks looks;
  looks.snapshot.stream.reconnects = 3;  // before anybody looked
  looks.look(8);
  EXPECT_EQ(looks.trend.live().trained_since_reconnect, 40);
  looks.snapshot.stream.reconnects = 4;
  looks.look(1);
  EXPECT_EQ(looks.trend.live().trained_since_reconnect, 0);
  looks.look(2);
  EXPECT_EQ(looks.trend.live().trained_since_reconnect, 10);
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

TEST(TrendHistory, AveragesNeighbours) {
  TrendHistory history(4);
  for (int i = 0; i < 10; ++i) {
    TrendPoint point{};
    point[0] = i;
    history.add(point);
  }
  // Full at 4 points of one, then at 4 of two; from then on points of four.
  ASSERT_EQ(history.points().size(), 2u);
  EXPECT_DOUBLE_EQ(history.points()[0][0], 1.5);
  EXPECT_DOUBLE_EQ(history.points()[1][0], 5.5);
}

}  // namespace
}  // namespace millrace::io
