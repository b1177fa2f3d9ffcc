// What became of the samples that were admitted.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace millrace::engine {

enum class Fate : std::uint8_t {
  trained,
  predicted_only,    ///< left out by choice, for lack of time
  untold,            ///< left out since a sample of the update had no target
  replayed,          ///< learned from once more; the others came first
  replayed_in_vain,  ///< fed once more, but left out
};

/// What becomes of a sample that is fed once more, where another's fate is `fate`.
inline Fate again(Fate fate) {
  return fate == Fate::trained ? Fate::replayed : Fate::replayed_in_vain;
}

/// Samples by fate.
struct FateCounts {
  std::int64_t trained = 0, predicted_only = 0, untold = 0, replayed = 0, replayed_in_vain = 0;

  FateCounts& operator+=(const FateCounts& more) {
    trained += more.trained;
    predicted_only += more.predicted_only;
    untold += more.untold;
    replayed += more.replayed;
    replayed_in_vain += more.replayed_in_vain;
    return *this;
  }
  FateCounts operator-(const FateCounts& before) const {
    return {trained - before.trained, predicted_only - before.predicted_only,
            untold - before.untold, replayed - before.replayed,
            replayed_in_vain - before.replayed_in_vain};
  }
};

/// Counts samples by fate, over all runs. Written by workers, read by anyone.
class Tally {
 public:
  void add(Fate fate, std::int64_t samples) {
    counts_[std::size_t(fate)].fetch_add(samples, std::memory_order_relaxed);
  }
  FateCounts counts() const {
    return {of(Fate::trained), of(Fate::predicted_only), of(Fate::untold), of(Fate::replayed),
            of(Fate::replayed_in_vain)};
  }
  void add(const FateCounts& more) {
    add(Fate::trained, more.trained);
    add(Fate::predicted_only, more.predicted_only);
    add(Fate::untold, more.untold);
    add(Fate::replayed, more.replayed);
    add(Fate::replayed_in_vain, more.replayed_in_vain);
  }

 private:
  std::int64_t of(Fate fate) const {
    return counts_[std::size_t(fate)].load(std::memory_order_relaxed);
  }

  std::array<std::atomic<std::int64_t>, 5> counts_{};
};

}  // namespace millrace::engine
