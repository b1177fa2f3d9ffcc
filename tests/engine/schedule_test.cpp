#include "engine/schedule.h"

#include <gtest/gtest.h>

#include <stdexcept>  // std::invalid_argument

namespace millrace::engine {
namespace {

/// The first `count` actions of a worker as "F0 B2(0) U2".
std::string text(const Program& program, int count) {
  std::string line;
  for (int i = 0; i < count; ++i) {
    const Action a = program.at(i);
    if (i > 0) line += ' ';
    line += "FBU"[int(a.op)] + std::to_string(a.sample);
    if (a.op == Op::backward && a.gradient != a.sample) line += "(" + std::to_string(a.gradient) + ")";
  }
  return line;
}

TEST(Partime, IsItsStaircase) {
  const Schedule s = make_schedule("partime", {.stages = 3});
  ASSERT_EQ(s.workers.size(), 3u);
  EXPECT_EQ(text(s.workers[0], 10), "F0 F1 F2 F3 F4 B4(2) U4 F5 B5(3) U5");
  EXPECT_EQ(text(s.workers[1], 8), "F0 F1 F2 B2(0) U2 F3 B3(1) U3");
  EXPECT_EQ(text(s.workers[2], 6), "F0 B0 U0 F1 B1 U1");
}

TEST(Sequential, IsItsStaircase) {
  const Schedule s = make_schedule("sequential", {.stages = 2});
  EXPECT_EQ(text(s.workers[0], 6), "F0 B0 U0 F1 B1 U1");
  EXPECT_EQ(text(s.workers[1], 6), "F0 B0 U0 F1 B1 U1");
}

TEST(GradientAges, FollowFromTheText) {
  EXPECT_EQ(gradient_ages(make_schedule("partime", {.stages = 4})), (std::vector<std::int64_t>{6, 4, 2, 0}));
  EXPECT_EQ(gradient_ages(make_schedule("sequential", {.stages = 3})), (std::vector<std::int64_t>{0, 0, 0}));
}

TEST(Programs, EndWhenEveryActionIsBeyondTheStream) {
  const Schedule s = make_schedule("partime", {.stages = 2});
  EXPECT_FALSE(s.workers[0].over(0, 1));
  EXPECT_TRUE(s.workers[0].over(0, 0));
  EXPECT_TRUE(s.workers[0].over(2, 2));
  EXPECT_FALSE(s.workers[0].over(2, 3));
}

TEST(MakeSchedule, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(make_schedule("partme", {.stages = 2}), std::invalid_argument);
  EXPECT_THROW(make_schedule("partime", {.stages = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::engine
