#include "tools/app/feeds/replay_buffer.h"

#include <algorithm>
#include <cmath>

namespace millrace::app {

ReplayBuffer::ReplayBuffer(ReplayKind kind, int places, std::size_t bytes, std::uint64_t seed)
    : kind_(kind),
      places_(places),
      bytes_(bytes),
      pixels_(std::size_t(places) * bytes),
      random_(seed) {
  kept_.reserve(std::size_t(places));
}

int ReplayBuffer::keep(std::int64_t frame, float loss) {
  if (!std::isfinite(loss)) return -1;  // not worth keeping
  ++seen_;
  if (count() < places_) {
    kept_.push_back({frame, loss});
    return count() - 1;
  }
  const int place = place_for_next();
  if (place >= 0) kept_[std::size_t(place)] = {frame, loss};
  return place;
}

int ReplayBuffer::place_for_next() {
  switch (kind_) {
    case ReplayKind::none:
      return -1;
    case ReplayKind::recent:
      return int((seen_ - 1) % places_);
    case ReplayKind::reservoir: {
      const std::int64_t place = random_.below(seen_);
      return place < places_ ? int(place) : -1;
    }
    case ReplayKind::hard:
      return int(std::min_element(kept_.begin(), kept_.end(),
                                  [](const Kept& a, const Kept& b) { return a.loss < b.loss; }) -
                 kept_.begin());
  }
  return -1;
}

int ReplayBuffer::choose() {
  if (kind_ != ReplayKind::hard) return int(random_.below(count()));
  double sum = 0;
  for (const Kept& kept : kept_) sum += kept.loss;
  const double at = double(random_.next() >> 11) * 0x1p-53 * sum;
  double passed = 0;
  for (int place = 0; place < count(); ++place) {
    passed += kept_[std::size_t(place)].loss;
    if (at < passed) return place;
  }
  return count() - 1;  // every loss is 0
}

void ReplayBuffer::set_loss(int place, std::int64_t frame, float loss) {
  Kept& kept = kept_[std::size_t(place)];
  if (kept.frame == frame && std::isfinite(loss)) kept.loss = loss;
}

}  // namespace millrace::app
