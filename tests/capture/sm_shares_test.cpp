#include "capture/sm_shares.h"

#include <gtest/gtest.h>

#include <algorithm>  // max, min
#include <limits>     // infinity
#include <numeric>    // sums
#include <random>     // work
#include <stdexcept>  // std::invalid_argument

namespace millrace::capture {
namespace {

double slowest(const std::vector<double>& work, const std::vector<int>& shares) {
  double time = 0;
  for (std::size_t i = 0; i < work.size(); ++i) time = std::max(time, work[i] / shares[i]);
  return time;
}

/// The least slowest stage of all ways to give `groups` away, by trying each.
double exhaustive(int groups, const std::vector<double>& work, std::vector<int> shares = {}) {
  const int left = int(work.size() - shares.size());
  double best = std::numeric_limits<double>::infinity();
  for (int share = left == 1 ? groups : 1; share <= groups - (left - 1); ++share) {
    std::vector<int> longer = shares;
    longer.push_back(share);
    best = std::min(best, left == 1 ? slowest(work, longer)
                                    : exhaustive(groups - share, work, std::move(longer)));
  }
  return best;
}

TEST(SmShares, MakeTheSlowestStageAsFastAsCanBe) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> cost(0.0, 10.0);
  for (int stages = 1; stages <= 5; ++stages) {
    for (int groups = stages; groups <= 12; ++groups) {
      for (int trial = 0; trial < 20; ++trial) {
        std::vector<double> work(stages);
        for (double& w : work) w = random() % 4 == 0 ? double(random() % 3) : cost(random);
        const std::vector<int> shares = sm_shares(groups, work);
        ASSERT_EQ(int(shares.size()), stages);
        EXPECT_GE(*std::min_element(shares.begin(), shares.end()), 1);
        EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), 0), groups);
        EXPECT_EQ(slowest(work, shares), exhaustive(groups, work));
      }
    }
  }
}

TEST(SmShares, FollowTheWork) {
  EXPECT_EQ(sm_shares(16, {1, 2, 1}), (std::vector<int>{4, 8, 4}));
  EXPECT_EQ(sm_shares(16, {100, 1}), (std::vector<int>{15, 1}));
  EXPECT_EQ(sm_shares(6, {0, 0, 0}), (std::vector<int>{2, 2, 2}));
}

TEST(SmShares, RefuseFewerGroupsThanStages) {
  EXPECT_THROW(sm_shares(2, {1, 1, 1}), std::invalid_argument);
  EXPECT_THROW(sm_shares(0, {1}), std::invalid_argument);
  EXPECT_THROW(sm_shares(4, {}), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::capture
