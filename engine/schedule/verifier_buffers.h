#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/schedule/mailbox.h"

namespace millrace::engine {

/// How many of each worker's actions are known to be done.
using Knowledge = std::vector<std::int64_t>;

/// A vector clock: what each worker knows of the others from signals alone.
class HappensBefore {
 public:
  explicit HappensBefore(std::size_t workers) : known_(workers, Knowledge(workers, 0)) {}

  /// `worker` gets a signal from one that knew `theirs`.
  void learn(int worker, const Knowledge& theirs) {
    Knowledge& mine = known_[worker];
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = std::max(mine[i], theirs[i]);
  }
  /// `worker` ends its action.
  void pass(int worker) { ++known_[worker][worker]; }
  /// What `worker` knows once its current action is done.
  Knowledge now(int worker) const {
    Knowledge known = known_[worker];
    ++known[worker];
    return known;
  }
  std::int64_t at(int worker) const { return known_[worker][worker]; }
  bool knows(int worker, int other, std::int64_t action) const {
    return known_[worker][other] > action;
  }

 private:
  std::vector<Knowledge> known_;
};

/// Buffers that some actions write and others read, one item at a time. Every call is for
/// `worker`'s current action. Throws Wrong if some timing could read too late or write too soon.
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

  /// Samples share slots. Sums of consecutive updates alternate between two buffers.
  Buffer& at(Kind kind, int owner, std::int64_t item) {
    return buffers_[{kind, owner, item % (kind == Kind::sum ? 2 : slots_)}];
  }

  const HappensBefore& order_;
  int slots_;
  std::map<std::tuple<Kind, int, std::int64_t>, Buffer> buffers_;
};

}  // namespace millrace::engine
