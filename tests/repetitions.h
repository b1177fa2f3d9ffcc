// How often a test of chance repeats itself.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace millrace {

/// `all` under `tools/test --long`, which sets MILLRACE_LONG; else a tenth, enough to see a gross fault.
inline int repetitions(int all) {
  return std::getenv("MILLRACE_LONG") != nullptr ? all : std::max(1, all / 10);
}

}  // namespace millrace
