// Which actions are over when another begins, whatever the timing: by messages and slots alone.
#pragma once

#include <algorithm>  // max
#include <cstdint>    // action numbers
#include <map>        // buffers
#include <optional>   // a conflict
#include <utility>    // reads
#include <vector>     // one a worker

namespace millrace::engine {

/// How many of each worker's actions are known to be over.
using Knowledge = std::vector<std::int64_t>;

/// What each worker of a schedule knows of the others as it goes from action to action.
class HappensBefore {
 public:
  explicit HappensBefore(std::size_t workers) : known_(workers, Knowledge(workers, 0)) {}

  /// `worker` hears from somebody who knew `theirs`.
  void learn(int worker, const Knowledge& theirs) {
    Knowledge& mine = known_[worker];
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = std::max(mine[i], theirs[i]);
  }
  /// `worker` ends its action.
  void pass(int worker) { ++known_[worker][worker]; }
  /// What whoever hears of the action that `worker` is at knows: that it is over.
  Knowledge now(int worker) const {
    Knowledge known = known_[worker];
    ++known[worker];
    return known;
  }
  /// The number of the action that `worker` is at.
  std::int64_t at(int worker) const { return known_[worker][worker]; }
  bool knows(int worker, int other, std::int64_t action) const {
    return known_[worker][other] > action;
  }

 private:
  std::vector<Knowledge> known_;
};

/// Buffers that some actions write and others read: [owner][slot], holding one item at a time.
class Slots {
 public:
  explicit Slots(HappensBefore& order) : order_(order) {}

  /// `worker` reads `item`. Returns what lies there instead, if it was overwritten.
  std::optional<std::int64_t> read(int worker, int owner, std::int64_t slot, std::int64_t item) {
    Buffer& from = buffers_[{owner, slot}];
    if (from.item != item) return from.item;
    from.reads.emplace_back(worker, order_.at(worker));
    return std::nullopt;
  }

  /// `worker` writes `item`. Returns a worker who may still be reading what lies there.
  std::optional<int> write(int worker, int owner, std::int64_t slot, std::int64_t item) {
    Buffer& into = buffers_[{owner, slot}];
    for (const auto& [reader, action] : into.reads) {
      if (reader != worker && !order_.knows(worker, reader, action)) return reader;
    }
    into = {item, {}};
    return std::nullopt;
  }

 private:
  struct Buffer {
    std::int64_t item = -1;
    std::vector<std::pair<int, std::int64_t>> reads;  ///< worker, its action, since the last write
  };

  HappensBefore& order_;
  std::map<std::pair<int, std::int64_t>, Buffer> buffers_;
};

}  // namespace millrace::engine
