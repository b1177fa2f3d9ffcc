#include "tools/app/watches.h"

#include <gtest/gtest.h>

namespace millrace::app {
namespace {

TEST(RateWatch, TheEstimateIsToldOnceWhereNobodyHasSetARate) {
  engine::Monitor monitor({1, 1}, 10);
  RateWatch rate(monitor);
  EXPECT_EQ(rate.look(25), "");
  EXPECT_EQ(monitor.fps(), 10);
  EXPECT_FALSE(rate.estimated());
  monitor.set_fps(0);  // the config takes it back
  EXPECT_NE(rate.look(25).find("F = 25"), std::string::npos);
  EXPECT_TRUE(rate.estimated());
  EXPECT_NEAR(monitor.read().budget, 40, 1e-6);
  EXPECT_EQ(rate.look(25), "");
  EXPECT_EQ(rate.look(50), "") << "a second line within a minute";
  EXPECT_EQ(monitor.fps(), 50);
}

TEST(RollBackWatch, TellsAtMostOneLineAMinuteWithTheCount) {
  RollBackWatch watch;
  const std::chrono::steady_clock::time_point start;
  int lines = 0;
  std::string last;
  // 533 roll-backs in 90 seconds, looked at 20 times a second.
  for (int tick = 0; tick < 1800; ++tick) {
    const engine::LossGuard::Status guard{.roll_backs = 533 * (tick + 1) / 1800,
                                          .last_frame = tick};
    const std::string line =
        watch.look(guard, /*all=*/tick == 1799, start + std::chrono::milliseconds(50 * tick));
    if (line.empty()) continue;
    ++lines;
    last = line;
    if (lines == 2) {
      EXPECT_NE(line.find("; 355 roll-backs since"), std::string::npos) << line;
    } else if (lines == 1) {
      EXPECT_EQ(line.find("since the last"), std::string::npos) << line;
    }
  }
  EXPECT_EQ(lines, 3);  // at 0 s, 60 s and the end
  EXPECT_NE(last.find("; 177 roll-backs since the last such line"), std::string::npos) << last;
}

}  // namespace
}  // namespace millrace::app
