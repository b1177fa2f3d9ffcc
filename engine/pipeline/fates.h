// What became of the samples that were admitted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace millrace::engine {

enum class Fate : std::uint8_t {
  trained,
  predicted_only,  ///< left out by choice, for lack of time
  untold,          ///< left out since a sample of the update had no target
};

/// Counts fates, and remembers the latest, since which updates count at the stream's end is known
/// only then. set(): the last stage's workers, each of its own samples. count(): after they ended.
class Fates {
 public:
  /// `latest`: how many are remembered.
  explicit Fates(std::int64_t latest) : latest_(std::size_t(latest)) {}

  /// Of the `samples` samples up to `last`.
  void set(std::int64_t last, std::int64_t samples, Fate fate) {
    for (std::int64_t sample = last - samples + 1; sample <= last; ++sample)
      latest_[std::size_t(sample) % latest_.size()] = {sample, fate};
    counts_[std::size_t(fate)].fetch_add(samples, std::memory_order_relaxed);
  }
  /// Samples before `end` of that fate.
  std::int64_t count(Fate fate, std::int64_t end) const {
    std::int64_t count = counts_[std::size_t(fate)].load(std::memory_order_relaxed);
    for (const Entry& entry : latest_) count -= entry.sample >= end && entry.fate == fate ? 1 : 0;
    return count;
  }

 private:
  struct Entry {
    std::int64_t sample = -1;
    Fate fate = Fate::trained;
  };
  std::vector<Entry> latest_;
  std::array<std::atomic<std::int64_t>, 3> counts_{};
};

}  // namespace millrace::engine
