// The middle of some measurements, and other places in their order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace millrace::engine {

/// Of an even number the upper of the two in the middle; 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The value that a share `q` of the others lie below, of two the lower; 0 of none.
inline double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = values.begin() + std::ptrdiff_t(q * double(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace millrace::engine
