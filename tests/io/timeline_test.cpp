#include "io/source/timeline.h"

#include <random>

#include <gtest/gtest.h>

namespace millrace::io {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds, std::chrono::nanoseconds, std::chrono::seconds;

constexpr milliseconds kPeriod(40);
constexpr seconds kSlack(2);

// Frames that arrive a period apart.
std::vector<nanoseconds> mapped(Timeline& time, const std::vector<nanoseconds>& stamps) {
  std::vector<nanoseconds> out;
  for (const nanoseconds stamp : stamps) out.push_back(time.map(stamp, kPeriod));
  return out;
}

std::vector<nanoseconds> steady(nanoseconds start, int frames) {
  std::vector<nanoseconds> stamps;
  for (int n = 0; n < frames; ++n) stamps.push_back(start + n * kPeriod);
  return stamps;
}

TEST(Timeline, GoodStampsStayAsTheyAre) {
  Timeline time(kPeriod, kSlack);
  const std::vector<nanoseconds> stamps = {seconds(5), milliseconds(5039), milliseconds(5081),
                                           milliseconds(5120), milliseconds(6900)};
  EXPECT_EQ(mapped(time, stamps), stamps);
}

TEST(Timeline, AResetOrAJumpCostsOnePeriodOfTime) {
  for (const nanoseconds leap : {nanoseconds(-hours(1)), nanoseconds(hours(1)),
                                 nanoseconds(-seconds(5)), nanoseconds(seconds(5))}) {
    Timeline time(kPeriod, kSlack);
    mapped(time, steady(hours(2), 100));
    const std::vector<nanoseconds> after =
        mapped(time, steady(hours(2) + leap + 100 * kPeriod, 100));
    EXPECT_EQ(after, steady(hours(2) + 100 * kPeriod, 100)) << leap.count();
    EXPECT_EQ(time.lost(), 0) << leap.count();
  }
}

TEST(Timeline, FewFramesASecondAreNoJump) {
  Timeline time(seconds(30), kSlack);
  EXPECT_EQ(time.map(seconds(0)), seconds(0));
  EXPECT_EQ(time.map(seconds(30)), seconds(30));
  EXPECT_EQ(time.map(seconds(90)), seconds(90));
}

TEST(Timeline, NoStampsOverflow) {
  EXPECT_EQ(frame_period(1.0 / 2147483646), nanoseconds(0));
  EXPECT_EQ(stamp_of(std::numeric_limits<double>::quiet_NaN()), nanoseconds(0));
  Timeline time(seconds(1'000'000'000), kSlack);  // whatever a source claims
  nanoseconds last(-1);
  for (int n = 0; n < 100; ++n) {
    const nanoseconds stamp = n % 3 == 0   ? nanoseconds::max()
                              : n % 3 == 1 ? nanoseconds::min()
                                           : stamp_of(1e300 * n);
    const nanoseconds next = time.map(stamp);
    EXPECT_GT(next, std::exchange(last, next)) << n;
  }
  EXPECT_LT(last, nanoseconds::max() / 2);
}

TEST(Timeline, ABreakLastsAsLongAsItLasted) {
  Timeline time(kPeriod, kSlack);
  mapped(time, steady(seconds(0), 50));
  time.broke_off();
  const nanoseconds last = 49 * kPeriod;
  EXPECT_EQ(time.map(seconds(0), seconds(8)), last + seconds(8));
  EXPECT_EQ(time.map(kPeriod, kPeriod), last + seconds(8) + kPeriod);
  EXPECT_EQ(time.lost(), 8000 / 40 - 1);
}

TEST(Timeline, StampsThatStandStillAreMadeUp) {
  Timeline clock(kPeriod, kSlack);
  EXPECT_EQ(clock.map(seconds(1)), seconds(1));
  EXPECT_EQ(clock.map(seconds(1), milliseconds(70)), milliseconds(1070));
  EXPECT_EQ(clock.map(seconds(1)), milliseconds(1110));
  Timeline time(nanoseconds(0), kSlack);
  for (int n = 0; n < 20; ++n) time.map(nanoseconds(0), milliseconds(50));
  EXPECT_NEAR(time.rate(), 20.0, 1e-6) << "arrivals show it";
}

TEST(Timeline, AlwaysGrows) {
  Timeline time(nanoseconds(0), kSlack);
  nanoseconds last(-1);
  std::mt19937_64 random;
  for (int n = 0; n < 100000; ++n) {
    if (n % 1000 == 999) time.broke_off();
    const nanoseconds stamp(random() % (n % 7 ? 100000000 : 7200000000000));
    const nanoseconds out = time.map(stamp, milliseconds(random() % 16 * 10));
    ASSERT_GT(out, last) << n;
    last = out;
  }
}

TEST(Timeline, CountsWhatAGapSwallowed) {
  Timeline time(kPeriod, kSlack);
  mapped(time, steady(seconds(0), 50));
  EXPECT_EQ(time.lost(), 0);
  mapped(time, steady(53 * kPeriod, 50));
  EXPECT_EQ(time.lost(), 3);
  mapped(time, steady(104 * kPeriod, 50));
  EXPECT_EQ(time.lost(), 4);
}

TEST(Timeline, JitterIsNoLoss) {
  Timeline time(kPeriod, kSlack);
  std::mt19937 random;
  for (int n = 0; n < 10000; ++n)
    time.map(n * kPeriod + milliseconds(int(random() % 25) - 12), kPeriod);
  EXPECT_EQ(time.lost(), 0);
}

TEST(Timeline, FramesThatAreDelayedAreNotLost) {
  Timeline time(kPeriod, kSlack);
  for (int n = 0; n < 2000; ++n) {
    const milliseconds delay = std::max(milliseconds(0), milliseconds(200 - 5 * (n % 100)));
    time.map(n / 2 * 2 * kPeriod + delay, kPeriod);  // each second one has the stamp before
  }
  EXPECT_LE(time.lost(), 1);
}

TEST(Timeline, LearnsTheRealRate) {
  Timeline unnamed(nanoseconds(0), kSlack);
  for (int n = 0; n < 50; ++n) unnamed.map(n * seconds(1), seconds(1));
  EXPECT_EQ(unnamed.usual(), seconds(1));
  EXPECT_EQ(unnamed.lost(), 0);
  unnamed.map(seconds(53), seconds(4));
  EXPECT_EQ(unnamed.lost(), 3);

  Timeline wrong(kPeriod, kSlack);  // a camera that slows down in the dark
  for (int n = 0; n < 1000; ++n) wrong.map(2 * n * kPeriod, 2 * kPeriod);
  EXPECT_EQ(wrong.usual(), 2 * kPeriod);
  EXPECT_LE(wrong.lost(), 16);
}

TEST(Timeline, FrameTimesThatAlternateHaveTheirMeanRate) {
  for (const std::int64_t first : {10, 20, 30}) {  // milliseconds of 100 for two frames
    Timeline time(nanoseconds(0), kSlack);
    nanoseconds at(0);
    for (int n = 0; n < 200; ++n) {
      time.map(at, kPeriod);
      at += milliseconds(n % 2 == 0 ? first : 100 - first);
      if (n <= 100) continue;
      ASSERT_NEAR(time.rate(), 20, 1) << first << " ms, frame " << n;
    }
  }
}

double rate_of(const std::vector<nanoseconds>& stamps) {
  Timeline time(nanoseconds(0), kSlack);
  for (const nanoseconds stamp : stamps) time.map(stamp, kPeriod);
  return time.rate();
}

TEST(Timeline, TheRateIsKnownAfterAThirdOfASecondThoughFramesAreLostOrLateAndIsFollowed) {
  EXPECT_EQ(rate_of(steady(seconds(7), 8)), 0.0);
  EXPECT_NEAR(rate_of(steady(seconds(7), 9)), 25.0, 1e-6);
  std::vector<nanoseconds> stamps = steady(seconds(0), 50);
  for (int n = 0; n < 40; ++n) stamps.push_back(stamps.back() + milliseconds(100));
  EXPECT_NEAR(rate_of(stamps), 10.0, 1e-6) << "it changed";
  stamps.clear();
  for (int n = 0; n < 200; ++n) {
    if (n % 7 == 3) continue;  // lost
    stamps.push_back(n * kPeriod + milliseconds(n * 2654435761u % 21) -
                     milliseconds(10));  // jitter
  }
  EXPECT_NEAR(rate_of(stamps), 25.0, 1.5);
}

TEST(Timeline, FramesThatWaitedForTheReaderAndComeInABurstAreNoRate) {
  for (const int microseconds : {20, 200, 5000}) {
    const nanoseconds apart = std::chrono::microseconds(microseconds);
    Timeline time(nanoseconds(0), kSlack);
    nanoseconds stamp(0);
    for (int n = 0; n < 25; ++n) time.map(stamp += apart, apart);
    EXPECT_EQ(time.rate(), 0.0);
    for (int n = 0; n < 100; ++n) time.map(stamp += kPeriod, kPeriod);
    EXPECT_NEAR(time.rate(), 25.0, 1e-6);
    EXPECT_EQ(time.lost(), 0);
  }
}

TEST(Timeline, BurstsArriveAtTheirMeanRate) {
  for (const int burst : {3, 10, 30}) {
    Timeline time(nanoseconds(0), kSlack);
    for (int n = 0; n < 200; ++n) {
      const nanoseconds apart = n % burst == 0 ? burst * kPeriod : std::chrono::microseconds(50);
      time.map(nanoseconds(0), apart);
    }
    EXPECT_NEAR(time.rate(), 25, 5) << burst;
  }
}

}  // namespace
}  // namespace millrace::io
