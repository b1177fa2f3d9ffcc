#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// Predicts waits: since a schedule repeats, the wait before an action of its period takes about as
/// long as the last times. Thread-bound.
class WaitForecast {
 public:
  using Duration = std::chrono::nanoseconds;

  explicit WaitForecast(const Program& program)
      : prologue_(std::int64_t(program.prologue.size())), waits_(program.period.size()) {}

  /// A lower bound on the wait before action `index` of the program: less than all recent ones, so
  /// a worker that overslept gets a shorter estimate next time.
  Duration at_least(std::int64_t index) const {
    if (index < prologue_) return {};
    const auto& waits = waits_[place(index)];
    const Duration shortest = *std::min_element(waits.begin(), waits.end());
    return std::max(Duration(), shortest - shortest / 16 - kMargin);
  }

  void waited(std::int64_t index, Duration time) {
    if (index < prologue_) return;
    auto& waits = waits_[place(index)];
    std::rotate(waits.begin(), waits.begin() + 1, waits.end());
    waits.back() = time;
  }

 private:
  static constexpr std::chrono::microseconds kMargin{100};  ///< wake-up latency

  std::size_t place(std::int64_t index) const {
    return std::size_t(index - prologue_) % waits_.size();
  }

  const std::int64_t prologue_;
  std::vector<std::array<Duration, 4>> waits_;  ///< [action of the period]; 0: not known
};

}  // namespace millrace::engine
