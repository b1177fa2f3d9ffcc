// How long to wait before the next attempt.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>

namespace millrace::io {

/// Waits that double from `least` up to `most`, each drawn from the upper half of its range, so
/// that many clients of one camera do not all come back at the same moment. Thread-bound.
class Backoff {
 public:
  using milliseconds = std::chrono::milliseconds;

  /// Both 0: no waits at all.
  Backoff(milliseconds least, milliseconds most, std::uint64_t seed)
      : least_(std::max(least, milliseconds(0))), most_(std::max(most, least_)), random_(seed) {
    reset();
  }

  /// The next wait, never below `least` nor above `most`.
  milliseconds next() {
    const milliseconds floor = std::max(least_, ceiling_ / 2);
    std::uniform_int_distribution<std::int64_t> draw(floor.count(), ceiling_.count());
    ceiling_ = std::min(2 * ceiling_, most_);
    return milliseconds(draw(random_));
  }
  /// All is well again: the next wait is a short one.
  void reset() { ceiling_ = std::min(2 * least_, most_); }

 private:
  const milliseconds least_;
  const milliseconds most_;
  milliseconds ceiling_;  // of the next wait
  std::mt19937_64 random_;
};

}  // namespace millrace::io
