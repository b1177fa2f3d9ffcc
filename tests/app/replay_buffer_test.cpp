#include "tools/app/feeds/replay_buffer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace::app {
namespace {

std::set<std::int64_t> kept(const ReplayBuffer& buffer) {
  std::set<std::int64_t> frames;
  for (int place = 0; place < buffer.count(); ++place) frames.insert(buffer.frame(place));
  return frames;
}

TEST(ReplayBuffer, RecentKeepsTheLatestAndNeverGrows) {
  ReplayBuffer buffer(ReplayKind::recent, 4, 100, 7);
  const std::byte* const first = buffer.at(0);
  for (int n = 0; n < 30; ++n) buffer.keep(n, 1);
  EXPECT_EQ(kept(buffer), (std::set<std::int64_t>{26, 27, 28, 29}));
  EXPECT_EQ(buffer.bytes(), 400u);
  EXPECT_EQ(buffer.at(0), first);
}

TEST(ReplayBuffer, ReservoirKeepsEveryFrameWithTheSameChance) {
  std::map<std::int64_t, int> times;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    ReplayBuffer buffer(ReplayKind::reservoir, 5, 1, seed);
    for (int n = 0; n < 50; ++n) buffer.keep(n, 1);
    for (const std::int64_t frame : kept(buffer)) ++times[frame];
  }
  for (int n = 0; n < 50; ++n) {
    // 400 of 4000 on average, with a deviation of 19.
    EXPECT_NEAR(times[n], 400, 100) << "frame " << n;
  }
}

TEST(ReplayBuffer, HardGivesUpTheEasiestAndTakesThoseOfLargeLoss) {
  ReplayBuffer buffer(ReplayKind::hard, 3, 1, 7);
  buffer.keep(0, 9);
  buffer.keep(1, 1);
  buffer.keep(2, 4);
  buffer.keep(3, 1);
  EXPECT_EQ(kept(buffer), (std::set<std::int64_t>{0, 2, 3}));
  std::map<std::int64_t, int> times;
  for (int n = 0; n < 1400; ++n) ++times[buffer.frame(buffer.choose())];
  EXPECT_NEAR(times[0], 900, 90);
  EXPECT_NEAR(times[2], 400, 90);
  EXPECT_NEAR(times[3], 100, 50);
  buffer.set_loss(0, 0, 0.5f);  // learned by now
  buffer.keep(4, 5);
  EXPECT_EQ(kept(buffer), (std::set<std::int64_t>{2, 3, 4}));
  ReplayBuffer one(ReplayKind::hard, 1, 1, 7);
  one.keep(0, 1);
  one.keep(1, 2);
  one.set_loss(0, 0, 100);  // late: the sample is gone
  one.keep(2, 3);
  EXPECT_EQ(kept(one), std::set<std::int64_t>{2});
}

TEST(ReplayBuffer, KeepsNothingWhoseLossIsNotFinite) {
  for (const ReplayKind kind : {ReplayKind::recent, ReplayKind::reservoir, ReplayKind::hard}) {
    ReplayBuffer buffer(kind, 2, 1, 7);
    EXPECT_EQ(buffer.keep(0, std::nanf("")), -1);
    EXPECT_EQ(buffer.keep(1, INFINITY), -1);
    EXPECT_EQ(buffer.count(), 0);
  }
}

}  // namespace
}  // namespace millrace::app
