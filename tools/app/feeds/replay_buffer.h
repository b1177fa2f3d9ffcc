// Decides which samples of a stream are stored for replay and which is replayed next.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/source/split_mix.h"

namespace millrace::app {

enum class ReplayKind : std::uint8_t {
  recent,     ///< the latest samples; replays any
  reservoir,  ///< a uniform choice of all so far (Vitter 1985, algorithm R); replays any
  /// The easiest is replaced by the newest; replays in proportion to the loss at the last
  /// prediction (Schaul et al. 2016, proportional, alpha 1).
  hard,
};

/// By replay.kind; none: no sample is trained on again.
inline std::optional<ReplayKind> replay_kind(const std::string& name) {
  if (name == "recent") return ReplayKind::recent;
  if (name == "reservoir") return ReplayKind::reservoir;
  return name == "hard" ? std::optional(ReplayKind::hard) : std::nullopt;
}

/// A fixed number of places of `bytes` each, allocated up front. Deterministic. Thread-bound.
class ReplayBuffer {
 public:
  ReplayBuffer(ReplayKind kind, int places, std::size_t bytes, std::uint64_t seed)
      : kind_(kind),
        places_(places),
        bytes_(bytes),
        pixels_(std::size_t(places) * bytes),
        random_(seed) {
    kept_.reserve(std::size_t(places));
  }

  /// The place for the stream's next sample; -1: don't store it.
  int keep(std::int64_t frame, float loss) {
    if (!std::isfinite(loss)) return -1;
    ++seen_;
    if (count() < places_) {
      kept_.push_back({frame, loss});
      return count() - 1;
    }
    const int place = place_for_next();
    if (place >= 0) kept_[std::size_t(place)] = {frame, loss};
    return place;
  }
  /// The place of the sample to replay. The buffer must not be empty.
  int choose() {
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
  /// Updates a replayed sample's loss, unless its place has been reused.
  void set_loss(int place, std::int64_t frame, float loss) {
    Kept& kept = kept_[std::size_t(place)];
    if (kept.frame == frame && std::isfinite(loss)) kept.loss = loss;
  }

  std::byte* at(int place) { return pixels_.data() + std::size_t(place) * bytes_; }
  std::int64_t frame(int place) const { return kept_[std::size_t(place)].frame; }
  int count() const { return int(kept_.size()); }
  int places() const { return places_; }
  std::size_t bytes() const { return pixels_.size(); }

 private:
  struct Kept {
    std::int64_t frame = -1;
    float loss = 0;
  };
  int place_for_next() {
    switch (kind_) {
      case ReplayKind::recent:
        return int((seen_ - 1) % places_);
      case ReplayKind::reservoir: {
        const std::int64_t place = random_.below(seen_);
        return place < places_ ? int(place) : -1;
      }
      case ReplayKind::hard:
        return int(std::ranges::min_element(kept_, {}, &Kept::loss) - kept_.begin());
    }
    return -1;
  }

  const ReplayKind kind_;
  const int places_;
  const std::size_t bytes_;
  std::vector<std::byte> pixels_;
  std::vector<Kept> kept_;
  std::int64_t seen_ = 0;
  io::Random random_;
};

}  // namespace millrace::app
