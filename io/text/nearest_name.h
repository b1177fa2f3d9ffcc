#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::io {

/// Counts insertions, deletions, substitutions and swaps of adjacent characters.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two_back(b.size() + 1), back(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    two_back = std::exchange(back, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({back[j - 1] + (a[i - 1] != b[j - 1]), back[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], two_back[j - 2] + 1);
    }
  }
  return row.back();
}

/// The known name with the fewest edits to `name`, the first if several; `known` is not empty.
template <class Names>
std::string nearest_name(std::string_view name, const Names& known) {
  return std::string(
      *std::ranges::min_element(known, {}, [&](auto& one) { return edit_distance(name, one); }));
}

}  // namespace millrace::io
