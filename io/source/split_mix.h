// Unlike std's distributions, gives the same random numbers on every machine.
#pragma once

#include <cstdint>

namespace millrace::io {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// 0 for a bound below 1.
  std::int64_t below(std::int64_t bound) {
    return bound < 1 ? 0 : std::int64_t(next() % std::uint64_t(bound));
  }

 private:
  std::uint64_t state_;
};

}  // namespace millrace::io
