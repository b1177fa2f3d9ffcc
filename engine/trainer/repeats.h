#pragma once

#include <cmath>
#include <vector>

#include "engine/monitor/median.h"
#include "engine/plan/profile.h"

namespace millrace::engine {

/// Median and median absolute deviation; 0 if empty.
inline plan::Measured measured(const std::vector<double>& repeats) {
  plan::Measured result{.median = median(repeats)};
  std::vector<double> off;
  for (const double value : repeats) off.push_back(std::abs(value - result.median));
  result.spread = median(off);
  return result;
}

/// Whether the median is known to within `share` of it: twice its standard error, estimated from
/// the spread. Never with fewer than 5 repeats.
inline bool settled(const std::vector<double>& repeats, double share) {
  constexpr std::size_t kFewest = 5;
  if (repeats.size() < kFewest) return false;
  // For normal distributions: standard deviation = 1.4826 spreads, median's error = 1.2533 mean's.
  const plan::Measured m = measured(repeats);
  const double error = 1.2533 * 1.4826 * m.spread / std::sqrt(double(repeats.size()));
  return 2 * error <= share * m.median;
}

}  // namespace millrace::engine
