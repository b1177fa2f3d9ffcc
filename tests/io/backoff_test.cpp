#include "io/source/backoff.h"

#include <vector>

#include <gtest/gtest.h>

namespace millrace::io {
namespace {

using std::chrono::milliseconds;

std::vector<milliseconds> waits(Backoff& backoff, int count) {
  std::vector<milliseconds> all;
  for (int n = 0; n < count; ++n) all.push_back(backoff.next());
  return all;
}

TEST(Backoff, DoublesWithinItsBounds) {
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    Backoff backoff(milliseconds(500), milliseconds(10000), seed);
    const int least[] = {500, 1000, 2000, 4000, 5000, 5000, 5000};
    const int most[] = {1000, 2000, 4000, 8000, 10000, 10000, 10000};
    for (int n = 0; n < 7; ++n) {
      const milliseconds wait = backoff.next();
      EXPECT_GE(wait, milliseconds(least[n])) << n;
      EXPECT_LE(wait, milliseconds(most[n])) << n;
    }
    backoff.reset();
    EXPECT_LE(backoff.next(), milliseconds(1000));
  }
}

TEST(Backoff, JitterIsTheSeeds) {
  Backoff one(milliseconds(500), milliseconds(10000), 1);
  Backoff same(milliseconds(500), milliseconds(10000), 1);
  Backoff other(milliseconds(500), milliseconds(10000), 2);
  const std::vector<milliseconds> expected = waits(one, 20);
  EXPECT_EQ(waits(same, 20), expected);
  EXPECT_NE(waits(other, 20), expected);
}

TEST(Backoff, MayBeNothing) {
  Backoff none(milliseconds(0), milliseconds(0), 1);
  for (const milliseconds wait : waits(none, 10)) EXPECT_EQ(wait, milliseconds(0));
}

}  // namespace
}  // namespace millrace::io
