// Which samples of a stream are kept to be learned from again, and which of them is next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/source/split_mix.h"
#include "tools/app/config/replay.h"

namespace millrace::app {

/// Fixed places of `bytes` each, all taken in the constructor. What it does depends on its
/// arguments alone. Thread-bound.
class ReplayBuffer {
 public:
  ReplayBuffer(ReplayKind kind, int places, std::size_t bytes, std::uint64_t seed);

  /// Where the stream's next sample, of that loss, is to be written: a place that is empty or given
  /// up; -1: nowhere.
  int keep(std::int64_t frame, float loss);
  /// A place to learn from again; some sample must be kept.
  int choose();
  /// A sample chosen there was predicted again; left alone if another lies there by now.
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
