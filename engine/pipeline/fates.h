// What became of the samples that were admitted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace millrace::engine {

enum class Fate : std::uint8_t {
  trained,
  predicted_only,    ///< left out by choice, for lack of time
  untold,            ///< left out since a sample of the update had no target
  replayed,          ///< learned from once more
  replayed_in_vain,  ///< fed once more, but left out
};

/// What becomes of a sample that is fed once more, where another's fate is `fate`.
inline Fate again(Fate fate) {
  return fate == Fate::trained ? Fate::replayed : Fate::replayed_in_vain;
}

/// Counts fates, and remembers the latest, since which updates count at the stream's end is known
/// only then. set(): the last stage's workers, each of its own samples. count(): after they ended.
class Fates {
 public:
  /// `latest`: how many are remembered.
  explicit Fates(std::int64_t latest) : latest_(std::size_t(latest)) {}

  void set(std::int64_t sample, Fate fate) {
    latest_[std::size_t(sample) % latest_.size()] = {sample, fate};
    counts_[std::size_t(fate)].fetch_add(1, std::memory_order_relaxed);
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
  std::array<std::atomic<std::int64_t>, 5> counts_{};
};

}  // namespace millrace::engine
