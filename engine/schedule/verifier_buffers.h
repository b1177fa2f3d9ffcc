// What is over when, whatever the timing, and hence which buffer may be read and written when.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// Thrown from within a walk; verify() adds where.
struct Wrong {
  std::string what;
};

/// How many of each worker's actions are known to be over.
using Knowledge = std::vector<std::int64_t>;

/// What each worker of a schedule knows of the others as it goes from action to action, by signals
/// alone (a vector clock).
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

/// Buffers that some actions write and others read, each holding one item at a time. Every call is
/// made for the action that `worker` is at. Throws Wrong where a buffer is read too late or written
/// too soon for some timing.
class Buffers {
 public:
  enum class Kind { sample, activation, gradient, sum };

  Buffers(const HappensBefore& order, int slots) : order_(order), slots_(slots) {}

  void read(int worker, Kind kind, int owner, std::int64_t item) {
    Buffer& from = at(kind, owner, item);
    if (from.item == item) return from.reads.emplace_back(worker, order_.at(worker)), void();
    if (kind == Kind::sum) throw Wrong{"another replica's gradient was overwritten"};
    throw Wrong{"its slot was overwritten by sample " + std::to_string(from.item)};
  }

  void write(int worker, Kind kind, int owner, std::int64_t item) {
    Buffer& into = at(kind, owner, item);
    for (const auto& [reader, action] : into.reads) {
      if (reader == worker || order_.knows(worker, reader, action)) continue;
      if (kind == Kind::sum)
        throw Wrong{"may overwrite a gradient that another replica still reads"};
      throw Wrong{"may overwrite what worker " + std::to_string(reader) + " still reads"};
    }
    into = {item, {}};
  }

 private:
  struct Buffer {
    std::int64_t item = -1;
    std::vector<std::pair<int, std::int64_t>> reads;  ///< worker, its action, since the last write
  };

  /// Samples share slots. The sums that an update applies lie in two buffers by turns.
  Buffer& at(Kind kind, int owner, std::int64_t item) {
    return buffers_[{kind, owner, item % (kind == Kind::sum ? 2 : slots_)}];
  }

  const HappensBefore& order_;
  int slots_;
  std::map<std::tuple<Kind, int, std::int64_t>, Buffer> buffers_;
};

}  // namespace millrace::engine
