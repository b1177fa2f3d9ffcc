#pragma once

#include <algorithm>
#include <cstdlib>

namespace millrace {

/// Under `tools/test --long`.
inline bool is_long() {
  return std::getenv("MILLRACE_LONG") != nullptr;
}

/// `all` in a long run, otherwise a tenth, enough to see a gross fault.
inline int repetitions(int all) {
  return is_long() ? all : std::max(1, all / 10);
}

}  // namespace millrace
