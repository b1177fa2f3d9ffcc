#pragma once

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>

#include "engine/schedule/lowering.h"

namespace millrace::engine {

/// A fault found in a walk through a schedule; the caller adds the position.
struct Wrong : std::logic_error {
  using std::logic_error::logic_error;
};

/// Signals given but not yet taken in a walk through a schedule, each with the giver's note. In
/// order from one replica to another.
template <class Note>
class Mailbox {
 public:
  /// `capacity`: signals that a link between stages holds.
  explicit Mailbox(const Lowering& lowering,
                   std::size_t capacity = std::numeric_limits<std::size_t>::max())
      : lowering_(lowering), capacity_(capacity) {}

  void give(const Signal& signal, const Note& note) {
    if (signal.from != signal.to) boxes_[key(signal)].push_back({signal.sample, signal.from, note});
  }

  /// Whether every link that `gives` go to has room, or its taker has ended (`ended(worker)`).
  template <class Ended>
  bool has_room(const Signals& gives, const Ended& ended) const {
    return std::all_of(gives.begin(), gives.end(), [&](const Signal& signal) {
      if (!signal.crosses_cut() || ended(lowering_.worker(signal.to))) return true;
      const auto found = boxes_.find(key(signal));
      return found == boxes_.end() || found->second.size() < capacity_;
    });
  }

  /// Whether `need` was given. Throws Wrong if its box holds another sample's signal.
  bool has(const Signal& need) const {
    if (never_held(need)) return true;
    const auto found = boxes_.find(key(need));
    if (found == boxes_.end() || found->second.empty()) return false;
    const Box& box = found->second;
    if (box.front().sample != need.sample)
      throw Wrong("receives what belongs to sample " + std::to_string(box.front().sample));
    if (need.kind == Signal::Kind::release) return int(box.size()) == lowering_.schedule().stages;
    if (need.kind == Signal::Kind::meeting)
      return int(box.size()) == lowering_.replicas(need.stage);
    return true;
  }

  /// Whether all of `needs` were given. Asking for a meeting is arriving at it. Throws Wrong.
  bool have(const Signals& needs, const Note& arrival) {
    for (const Signal& need : needs) {
      if (need.kind == Signal::Kind::meeting) arrive(need, arrival);
    }
    return std::all_of(needs.begin(), needs.end(), [&](const Signal& n) { return has(n); });
  }

  /// Takes `need`, which has been given, and calls `see(note)` for each giver's note.
  template <class See>
  void take(const Signal& need, const See& see) {
    if (never_held(need)) return;
    const auto found = boxes_.find(key(need));
    if (need.kind != Signal::Kind::meeting && need.kind != Signal::Kind::release) {
      see(found->second.front().note);
      found->second.pop_front();
      return;
    }
    for (const Letter& letter : found->second) see(letter.note);
    if (need.kind == Signal::Kind::release) boxes_.erase(found);
  }

 private:
  struct Letter {
    std::int64_t sample;
    int from;
    Note note;
  };
  using Box = std::deque<Letter>;
  using Key = std::tuple<Signal::Kind, std::int64_t, std::int64_t>;

  /// Signals in one box are taken together or in order.
  static Key key(const Signal& s) {
    if (s.kind == Signal::Kind::release) return {s.kind, s.sample, 0};
    if (s.kind == Signal::Kind::meeting) return {s.kind, s.sample, s.stage};
    return {s.kind, s.from, s.to};
  }

  /// Whether `need` is for a slot's first use, which waits for no release.
  static bool never_held(const Signal& need) {
    return need.kind == Signal::Kind::release && need.sample < 0;
  }

  void arrive(const Signal& meeting, const Note& note) {
    Box& box = boxes_[key(meeting)];
    const bool known = std::any_of(
        box.begin(), box.end(), [&](const Letter& letter) { return letter.from == meeting.from; });
    if (!known) box.push_back({meeting.sample, meeting.from, note});
  }

  const Lowering& lowering_;
  const std::size_t capacity_;
  std::map<Key, Box> boxes_;
};

}  // namespace millrace::engine
