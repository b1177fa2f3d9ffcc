#include "io/queue/slot_ring.h"

#include <thread>  // takers

#include <gtest/gtest.h>

namespace millrace::io {
namespace {

using std::chrono::microseconds;

TEST(SlotRing, IsFirstInFirstOut) {
  SlotRing ring(3);
  int number = -1;
  EXPECT_FALSE(ring.take(number));
  EXPECT_FALSE(ring.take(number, microseconds(100)));
  for (int lap = 0; lap < 5; ++lap) {
    for (int n = 0; n < 3; ++n) ring.put(10 * lap + n);
    for (int n = 0; n < 3; ++n) {
      ASSERT_TRUE(ring.take(number));
      EXPECT_EQ(number, 10 * lap + n);
    }
  }
  EXPECT_FALSE(ring.take(number));
}

TEST(SlotRing, APutWakesASleeper) {
  SlotRing ring(1);
  std::thread feeder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ring.put(5);
  });
  int number = -1;
  EXPECT_TRUE(ring.take(number, std::chrono::seconds(60)));
  EXPECT_EQ(number, 5);
  feeder.join();
}

// Two threads take what one puts in; the sum shows a number lost or taken twice.
TEST(SlotRing, EveryNumberIsTakenOnce) {
  constexpr int numbers = 50000, slots = 4;
  SlotRing ring(slots);
  std::atomic<std::int64_t> sum{0};
  std::atomic<int> left{numbers};
  const auto taker = [&] {
    for (int number = 0; left.load() > 0;) {
      if (!ring.take(number, microseconds(200))) continue;
      sum += number;
      --left;
    }
  };
  std::thread one(taker), other(taker);
  std::int64_t expected = 0;
  for (int n = 0; n < numbers; ++n) {
    while (n - (numbers - left.load()) >= slots) std::this_thread::yield();
    ring.put(n);
    expected += n;
  }
  one.join();
  other.join();
  EXPECT_EQ(sum.load(), expected);
}

}  // namespace
}  // namespace millrace::io
