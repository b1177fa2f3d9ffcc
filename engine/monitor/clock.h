// A monotonic clock, so that setting the system time does not disturb it.
#pragma once

#include <chrono>

namespace millrace::engine {

using Clock = std::chrono::steady_clock;

inline double now_ms() {
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

}  // namespace millrace::engine
