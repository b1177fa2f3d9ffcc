#include "engine/monitor/median.h"

#include <gtest/gtest.h>

namespace millrace::engine {
namespace {

TEST(Settled, NeedsRepeatsThatAgree) {
  EXPECT_FALSE(settled({1, 1, 1, 1}, 0.05)) << "too few to say";
  EXPECT_TRUE(settled({1, 1, 1, 1, 1}, 0.05));
  std::vector<double> wild;
  for (int n = 0; n < 20; ++n) wild.push_back(n % 2 ? 1 : 3);
  EXPECT_FALSE(settled(wild, 0.05));
  EXPECT_TRUE(settled(wild, 1.0));
  std::vector<double> repeats;
  for (int n = 0; n < 20; ++n) repeats.push_back(1 + 0.1 * (n % 5 - 2));
  EXPECT_FALSE(settled(repeats, 0.05));
  for (int n = 0; n < 80; ++n) repeats.push_back(1 + 0.1 * (n % 5 - 2));
  EXPECT_TRUE(settled(repeats, 0.05)) << "more repeats know more";
}

}  // namespace
}  // namespace millrace::engine
