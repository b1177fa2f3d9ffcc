#include "capture/program/kernels/team.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <set>

namespace millrace::kernels {
namespace {

TEST(Team, EveryThreadSeesWhatTheOthersDidBeforeTheyMet) {
  for (const int threads : {1, 2, 4}) {
    Team team(threads);
    std::vector<long> numbers(std::size_t(threads), 0), sums(std::size_t(threads), 0);
    for (int round = 1; round <= 100; ++round) {
      team.run([&](Share share) {
        EXPECT_EQ(share.count, threads);
        for (int again = 0; again < 3; ++again) {
          numbers[std::size_t(share.index)] += share.index + 1;
          team.meet();
          long sum = 0;
          for (const long number : numbers) sum += number;
          sums[std::size_t(share.index)] = sum;
          team.meet();
        }
      });
      const long expected = 3L * round * threads * (threads + 1) / 2;
      for (const long sum : sums) ASSERT_EQ(sum, expected) << threads << " threads";
    }
  }
}

TEST(Team, HelpersThatFellAsleepWakeUp) {
  Team team(3);
  int runs = 0;
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far longer than they spin
    team.run([&](Share share) {
      if (share.index == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      team.meet();
      if (share.index == 0) ++runs;
    });
  }
  EXPECT_EQ(runs, 20);
}

TEST(Team, TellsEachHelperItsIndexAtItsStart) {
  std::mutex mutex;
  std::set<int> told;
  {
    const Team team(4, [&](int index) {
      const std::lock_guard lock(mutex);
      told.insert(index);
    });
  }
  EXPECT_EQ(told, (std::set<int>{1, 2, 3}));
}

}  // namespace
}  // namespace millrace::kernels
