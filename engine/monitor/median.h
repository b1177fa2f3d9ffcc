#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

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

}  // namespace millrace::engine
