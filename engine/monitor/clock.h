// The clock of every time that the engine takes: monotonic, so that no set clock disturbs it.
#pragma once

#include <chrono>

namespace millrace::engine {

using Clock = std::chrono::steady_clock;

inline double now_ms() {
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

}  // namespace millrace::engine
