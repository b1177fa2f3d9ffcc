// How long to wait before the next attempt.
#pragma once

#include <chrono>   // waits
#include <cstdint>  // seed
#include <random>   // jitter

namespace millrace::io {

/// Waits that double from `least` up to `most`, each drawn from the upper half of its range, so
/// that many who lost the same camera do not all come back in the same moment. Thread-bound.
class Backoff {
 public:
  /// Both 0: no waits at all.
  Backoff(std::chrono::milliseconds least, std::chrono::milliseconds most, std::uint64_t seed);

  /// The next wait, never below `least` nor above `most`.
  std::chrono::milliseconds next();
  /// All is well again: the next wait is a short one.
  void reset() { ceiling_ = first_ceiling(); }

 private:
  std::chrono::milliseconds first_ceiling() const;

  const std::chrono::milliseconds least_;
  const std::chrono::milliseconds most_;
  std::chrono::milliseconds ceiling_;  // of the next wait
  std::mt19937_64 random_;
};

}  // namespace millrace::io
