#include "io/source/backoff.h"

#include <algorithm>  // bounds

namespace millrace::io {

using std::chrono::milliseconds;

Backoff::Backoff(milliseconds least, milliseconds most, std::uint64_t seed)
    : least_(std::max(least, milliseconds(0))),
      most_(std::max(most, least_)),
      ceiling_(first_ceiling()),
      random_(seed) {}

milliseconds Backoff::first_ceiling() const {
  return std::min(2 * least_, most_);
}

milliseconds Backoff::next() {
  const milliseconds floor = std::max(least_, ceiling_ / 2);
  std::uniform_int_distribution<std::int64_t> draw(floor.count(), ceiling_.count());
  ceiling_ = std::min(2 * ceiling_, most_);
  return milliseconds(draw(random_));
}

}  // namespace millrace::io
