// What happened to an admitted sample.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace millrace::engine {

enum class Fate : std::uint8_t {
  trained,
  predicted_only,  ///< not trained on, for lack of time
  without_target,  ///< not trained on, since it had no target
  incomplete,      ///< not trained on, since another sample of the update had no target
  replayed,        ///< trained on again
  replay_skipped,  ///< fed again, but not trained on
};

struct FateCounts {
  std::int64_t trained = 0, predicted_only = 0, without_target = 0, incomplete = 0, replayed = 0,
               replay_skipped = 0;
  /// Without replayed samples.
  std::int64_t fresh() const { return trained + predicted_only + without_target + incomplete; }

  FateCounts& operator+=(const FateCounts& more) { return add(more, 1); }
  FateCounts operator-(const FateCounts& before) const { return FateCounts(*this).add(before, -1); }

 private:
  FateCounts& add(const FateCounts& other, int sign);
};

/// [Fate]
inline constexpr std::int64_t FateCounts::*kCountOfFate[] = {
    &FateCounts::trained,    &FateCounts::predicted_only, &FateCounts::without_target,
    &FateCounts::incomplete, &FateCounts::replayed,       &FateCounts::replay_skipped};

inline FateCounts& FateCounts::add(const FateCounts& other, int sign) {
  for (const auto count : kCountOfFate) this->*count += sign * (other.*count);
  return *this;
}

/// Counts samples by fate, over all runs. Written by workers, read by any thread.
class Tally {
 public:
  void add(Fate fate, std::int64_t samples) {
    counts_[std::size_t(fate)].fetch_add(samples, std::memory_order_relaxed);
  }
  void add(const FateCounts& more) {
    for (std::size_t i = 0; i < counts_.size(); ++i) add(Fate(i), more.*kCountOfFate[i]);
  }
  FateCounts counts() const {
    FateCounts all;
    for (std::size_t i = 0; i < counts_.size(); ++i)
      all.*kCountOfFate[i] = counts_[i].load(std::memory_order_relaxed);
    return all;
  }

 private:
  std::array<std::atomic<std::int64_t>, std::size(kCountOfFate)> counts_{};
};

/// Tallies fates and remembers the latest, since only the end of the stream decides which updates
/// count. predicted(), then set(): last stage's workers, each its own samples. end_at(): after they
/// have ended.
class Fates {
 public:
  /// `latest`: how many to remember. `tally` must outlive this.
  Fates(Tally& tally, std::int64_t latest) : tally_(tally), latest_(std::size_t(latest)) {}

  /// `own`: trained if nothing of the sample's own prevents it.
  void predicted(std::int64_t sample, Fate own, bool replayed) {
    entry(sample) = {.sample = sample, .own = own, .replayed = replayed};
  }
  /// `fate`: the worst of the sample's update.
  void set(std::int64_t sample, Fate fate) {
    Entry& mine = entry(sample);
    mine.counted = true;
    mine.fate = mine.replayed ? fate == Fate::trained ? Fate::replayed : Fate::replay_skipped
                : mine.own != Fate::trained    ? mine.own
                : fate == Fate::without_target ? Fate::incomplete
                                               : fate;
    tally_.add(mine.fate, 1);
  }
  /// No update covers the samples from `end` on: takes back those that this replica counted, though
  /// another never reached them, and counts those without a target.
  void end_at(std::int64_t end) {
    for (const Entry& entry : latest_) {
      if (entry.sample < end) continue;
      if (entry.counted) tally_.add(entry.fate, -1);
      if (entry.own == Fate::without_target && !entry.replayed) tally_.add(entry.own, 1);
    }
  }

 private:
  struct Entry {
    std::int64_t sample = -1;
    Fate own = Fate::trained, fate = Fate::trained;
    bool replayed = false, counted = false;
  };
  Entry& entry(std::int64_t sample) { return latest_[std::size_t(sample) % latest_.size()]; }

  Tally& tally_;
  std::vector<Entry> latest_;
};

}  // namespace millrace::engine
