#include "engine/plan/balance.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace millrace::engine {

std::vector<int> balanced_cut(const std::vector<double>& costs, int stages) {
  const int modules = int(costs.size());
  if (stages < 1 || stages > modules) {
    throw std::invalid_argument(std::to_string(stages) + " stages cannot be cut from " +
                                std::to_string(modules) + " modules");
  }
  std::vector<double> sum(modules + 1, 0.0);
  for (int i = 0; i < modules; ++i) sum[i + 1] = sum[i] + costs[i];
  // best[s][n]: least bottleneck of the first n modules in s stages; from[s][n]: where the last
  // begins.
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(modules + 1, kNever));
  std::vector<std::vector<int>> from(stages + 1, std::vector<int>(modules + 1, 0));
  best[0][0] = 0;
  for (int s = 1; s <= stages; ++s) {
    for (int n = s; n <= modules; ++n) {
      for (int begin = s - 1; begin < n; ++begin) {
        const double value = std::max(best[s - 1][begin], sum[n] - sum[begin]);
        if (value <= best[s][n]) {
          best[s][n] = value;
          from[s][n] = begin;
        }
      }
    }
  }
  std::vector<int> cut;
  for (int s = stages, n = modules; s > 1; --s) {
    n = from[s][n];
    cut.push_back(n);
  }
  std::reverse(cut.begin(), cut.end());
  return cut;
}

double bottleneck(const std::vector<double>& costs, const std::vector<int>& cut) {
  double worst = 0, stage = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (next < cut.size() && int(i) == cut[next]) {
      stage = 0;
      ++next;
    }
    worst = std::max(worst, stage += costs[i]);
  }
  return worst;
}

}  // namespace millrace::engine
