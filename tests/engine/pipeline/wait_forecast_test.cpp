#include "engine/pipeline/rank_patience.h"

#include <gtest/gtest.h>

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;

/// Two actions before a period of two.
Program program() {
  const Action any;
  return {.prologue = {any, any}, .period = {any, any}};
}

TEST(WaitForecast, TellsLessThanTheShortestOfTheLastWaitsBeforeTheSameAction) {
  WaitForecast waits(program());
  for (int time = 0; time < 4; ++time) {
    EXPECT_EQ(waits.at_least(2), 0ns) << "four waits are needed to know, not " << time;
    waits.waited(2 + 2 * time, time == 1 ? 8ms : 16ms);
  }
  EXPECT_EQ(waits.at_least(4), 7500us - 100us);
  EXPECT_EQ(waits.at_least(5), 0ns) << "another action's";
  waits.waited(2, 16ms);
  waits.waited(2, 16ms);
  EXPECT_EQ(waits.at_least(2), 15ms - 100us) << "the short one is long ago";
  waits.waited(2, 0ms);
  EXPECT_EQ(waits.at_least(2), 0ns);
}

TEST(WaitForecast, WhoeverComesTooLateIsToldLessUntilHeIsInTime) {
  WaitForecast waits(program());
  for (int time = 0; time < 4; ++time) waits.waited(2, 10ms);
  constexpr auto kComes = 3ms;
  int late = 0;
  for (; waits.at_least(2) > kComes; ++late)
    waits.waited(2, std::max<std::chrono::nanoseconds>(kComes, waits.at_least(2)));
  EXPECT_GT(late, 0);
  EXPECT_LT(late, 30);
}

TEST(WaitForecast, KnowsNothingOfWhatIsDoneOnce) {
  WaitForecast waits(program());
  for (int time = 0; time < 8; ++time) waits.waited(1, 10ms);
  EXPECT_EQ(waits.at_least(1), 0ns);
  EXPECT_EQ(waits.at_least(3), 0ns);
}

}  // namespace
}  // namespace millrace::engine
