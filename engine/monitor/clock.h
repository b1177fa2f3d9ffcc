// A monotonic clock, so that setting the system time does not disturb it.
#pragma once

#include <chrono>
#include <cstdint>

namespace millrace::engine {

using Clock = std::chrono::steady_clock;

inline std::int64_t ns_of(Clock::duration time) {
  return std::chrono::nanoseconds(time).count();
}

inline double now_ms() {
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

/// Milliseconds that `work()` takes.
template <class Work>
double ms_of(const Work& work) {
  const double begin = now_ms();
  work();
  return now_ms() - begin;
}

}  // namespace millrace::engine
