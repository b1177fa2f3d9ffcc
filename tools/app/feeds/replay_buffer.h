// Which samples of a stream are kept for replay, and which one is replayed next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/source/split_mix.h"
#include "tools/app/config/replay.h"

namespace millrace::app {

/// A fixed number of places of `bytes` each, allocated in the constructor. Deterministic.
/// Thread-bound.
class ReplayBuffer {
 public:
  ReplayBuffer(ReplayKind kind, int places, std::size_t bytes, std::uint64_t seed);

  /// The place to keep the stream's next sample in; -1: don't keep it.
  int keep(std::int64_t frame, float loss);
  /// The place of the sample to replay next. The buffer must not be empty.
  int choose();
  /// Notes the new loss of a replayed sample, unless another one has taken its place.
  void set_loss(int place, std::int64_t frame, float loss);

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
  int place_for_next();

  const ReplayKind kind_;
  const int places_;
  const std::size_t bytes_;
  std::vector<std::byte> pixels_;
  std::vector<Kept> kept_;
  std::int64_t seen_ = 0;
  io::Random random_;
};

}  // namespace millrace::app
