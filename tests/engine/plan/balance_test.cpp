#include "engine/plan/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <stdexcept>

namespace millrace::engine {
namespace {

/// The least bottleneck of all cuts, by trying each.
double exhaustive(const std::vector<double>& costs, int stages, int from = 0,
                  std::vector<int> cut = {}) {
  if (int(cut.size()) == stages - 1) return bottleneck(costs, cut);
  double best = std::numeric_limits<double>::infinity();
  for (int place = from + 1; place < int(costs.size()); ++place) {
    std::vector<int> longer = cut;
    longer.push_back(place);
    best = std::min(best, exhaustive(costs, stages, place, longer));
  }
  return best;
}

TEST(Balance, IsTheExactMinimum) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> cost(0.0, 10.0);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> costs(1 + random() % 9);
    for (double& c : costs) c = random() % 4 == 0 ? 0.0 : cost(random);
    const int stages = 1 + int(random() % costs.size());
    const std::vector<int> cut = balanced_cut(costs, stages);
    ASSERT_EQ(int(cut.size()), stages - 1);
    EXPECT_TRUE(std::is_sorted(cut.begin(), cut.end()));
    EXPECT_DOUBLE_EQ(bottleneck(costs, cut), exhaustive(costs, stages));
  }
}

TEST(Balance, CountsTheHeadsOfAllStagesButTheLast) {
  const std::map<int, std::vector<double>> costs = {{1, {1, 3, 3, 3}}};
  const HeadCosts small{2, {{1, {2, 2, 2, 2}}}}, large{2, {{1, {1, 9, 9, 9}}}};
  EXPECT_EQ(balanced(costs, {{1}, {1}}, 2).cut, std::vector<int>{2});
  EXPECT_EQ(balanced(costs, {{1}, {1}}, 2, {}, small).cut, std::vector<int>{1});
  EXPECT_EQ(balanced(costs, {{1}, {1}, {1}}, 3, {}, small).cut, (std::vector<int>{1, 2}));
  EXPECT_EQ(balanced(costs, {{1}, {1}}, 2, {}, large).cut, std::vector<int>{1});
}

/// Two threads halve a module's time, except for the second module, which they can't share.
const std::map<int, std::vector<double>> kByThreads = {{1, {4, 6, 4, 4, 4}}, {2, {2, 6, 2, 2, 2}}};

TEST(Balance, AStageOfMoreThreadsGetsMoreModules) {
  EXPECT_EQ(balanced(kByThreads, {{2}, {1}}, 3).cut, std::vector<int>{3});
  EXPECT_EQ(balanced(kByThreads, {{1}, {2}}, 3).cut, std::vector<int>{2});
  EXPECT_EQ(balanced(kByThreads, {{1}, {1}}, 2).cut, std::vector<int>{2});
}

TEST(Balance, ChoosesThreadsAndCutTogether) {
  const std::vector<std::vector<int>> any = {{1, 2}, {1, 2}};
  const Balance three = balanced(kByThreads, any, 3), four = balanced(kByThreads, any, 4);
  EXPECT_EQ(three.threads, (std::vector<int>{2, 1}));
  EXPECT_EQ(three.cut, std::vector<int>{3});
  EXPECT_EQ(four.threads, (std::vector<int>{2, 2}));
  EXPECT_EQ(four.cut, std::vector<int>{2});
  // A given cut stays, and a thread that gains nothing is left out.
  EXPECT_EQ(balanced(kByThreads, any, 4, {1}).threads, (std::vector<int>{1, 2}));
  EXPECT_EQ(balanced({{1, {3, 3}}, {2, {3, 3}}}, any, 4).threads, (std::vector<int>{1, 1}));
}

TEST(Balance, RefusesTooManyStages) {
  EXPECT_THROW(balanced_cut({1, 2}, 3), std::invalid_argument);
  EXPECT_THROW(balanced_cut({1, 2}, 0), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::engine
