#include "tools/app/rate_watch.h"

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

}  // namespace
}  // namespace millrace::app
