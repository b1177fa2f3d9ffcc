#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "engine/plan/profile.h"

namespace millrace::engine {

/// The upper of two middle values; 0 if empty.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The q-quantile without interpolation: the lower neighbour; 0 if empty.
inline double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = values.begin() + std::ptrdiff_t(q * double(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

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
