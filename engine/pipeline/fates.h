// The latest samples' fates, until it is known which updates count.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/monitor/tally.h"

namespace millrace::engine {

/// Tallies fates, and remembers the latest, since which updates count is known at the stream's end
/// only. set(): the last stage's workers, each of its own samples. take_back(): after they ended.
class Fates {
 public:
  /// `latest`: how many are remembered. `tally` outlives this.
  Fates(Tally& tally, std::int64_t latest) : tally_(tally), latest_(std::size_t(latest)) {}

  void set(std::int64_t sample, Fate fate) {
    latest_[std::size_t(sample) % latest_.size()] = {sample, fate};
    tally_.add(fate, 1);
  }
  /// Takes back what a replica counted from sample `end` on, since another could not.
  void take_back(std::int64_t end) {
    for (const Entry& entry : latest_) {
      if (entry.sample >= end) tally_.add(entry.fate, -1);
    }
  }

 private:
  struct Entry {
    std::int64_t sample = -1;
    Fate fate = Fate::trained;
  };
  Tally& tally_;
  std::vector<Entry> latest_;
};

}  // namespace millrace::engine
