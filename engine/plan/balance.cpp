#include "engine/plan/balance.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace millrace::engine {
namespace {

/// The least bottleneck of the first n modules in the first s stages, and the last stage's choice.
struct Best {
  double bottleneck = std::numeric_limits<double>::infinity();
  int begin = 0, threads = 0;
};

}  // namespace

Balance balanced(const std::map<int, std::vector<double>>& costs,
                 const std::vector<std::vector<int>>& choices, int places,
                 const std::vector<int>& cut, const HeadCosts& heads) {
  const int modules = int(costs.begin()->second.size()), stages = int(choices.size());
  std::map<int, std::vector<double>> sums;
  for (const auto& [threads, all] : costs) {
    std::vector<double>& sum = sums[threads];
    sum.push_back(0);
    for (const double cost : all) sum.push_back(sum.back() + cost);
  }
  // best[s][n][p]: of the first n modules in s stages with p threads.
  std::vector best(
      std::size_t(stages) + 1,
      std::vector(std::size_t(modules) + 1, std::vector<Best>(std::size_t(places) + 1)));
  best[0][0][0].bottleneck = 0;
  for (int s = 1; s <= stages; ++s) {
    const bool last = s == stages;
    const int fixed = last ? modules : cut.empty() ? 0 : cut[std::size_t(s) - 1];
    for (int n = fixed ? fixed : s; n <= (fixed ? fixed : modules); ++n) {
      for (int begin = s - 1; begin < n; ++begin) {
        for (const int threads : choices[std::size_t(s) - 1]) {
          const std::vector<double>& sum = sums.at(threads);
          double cost = sum[n] - sum[begin];
          if (!last && !heads.heads.empty())
            cost = heads.factor * cost + heads.heads.at(threads)[std::size_t(n) - 1];
          for (int p = threads; p <= places; ++p) {
            const double value = std::max(best[s - 1][begin][p - threads].bottleneck, cost);
            if (value <= best[s][n][p].bottleneck) best[s][n][p] = {value, begin, threads};
          }
        }
      }
    }
  }
  int taken = 0;
  const std::vector<Best>& all = best[stages][modules];
  for (int p = 1; p <= places; ++p) {
    if (all[p].bottleneck < all[taken].bottleneck) taken = p;
  }
  if (all[taken].threads == 0) {
    throw std::invalid_argument(std::to_string(stages) + " stages cannot be cut from " +
                                std::to_string(modules) + " modules");
  }
  Balance found;
  for (int s = stages, n = modules; s > 0; --s) {
    const Best& stage = best[s][n][taken];
    found.threads.push_back(stage.threads);
    if (s > 1) found.cut.push_back(stage.begin);
    n = stage.begin;
    taken -= stage.threads;
  }
  std::reverse(found.cut.begin(), found.cut.end());
  std::reverse(found.threads.begin(), found.threads.end());
  return found;
}

std::vector<int> balanced_cut(const std::vector<double>& costs, int stages) {
  const std::vector<std::vector<int>> one(std::size_t(std::max(stages, 0)), {1});
  return balanced({{1, costs}}, one, stages).cut;
}

double bottleneck(const std::vector<double>& costs, const std::vector<int>& cut) {
  double worst = 0, stage = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (std::ranges::binary_search(cut, int(i))) stage = 0;
    worst = std::max(worst, stage += costs[i]);
  }
  return worst;
}

}  // namespace millrace::engine
