// Which ranks are alive, by when a letter last came from each.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "engine/monitor/clock.h"
#include "engine/pipeline/exchange.h"

namespace millrace::engine {

/// Under Exchange::mutex().
class RankPulse {
 public:
  static constexpr std::chrono::milliseconds kBeat{500};  ///< between letters of a living rank

  /// `silence`: after which a rank is lost. `exchange` outlives this.
  RankPulse(const Exchange& exchange, std::chrono::seconds silence)
      : exchange_(exchange), silence_(silence), heard_(std::size_t(exchange.ranks())) {}

  void heard(int rank) {
    Clock::time_point& heard = heard_[std::size_t(rank)];
    if (heard != kEnded) heard = Clock::now();
  }
  /// `rank` may be silent from now on.
  void ended(int rank) { heard_[std::size_t(rank)] = kEnded; }
  /// "" unless a rank that has begun and not ended has been silent for too long; then says which.
  /// Time in which nobody asked this counts for no rank: this process stood still, as after
  /// SIGSTOP, and the others may have, too. Asked again and again by whoever waits.
  std::string lost() {
    const Clock::time_point now = Clock::now(), before = std::exchange(asked_, now);
    if (before != kNever && now - before > kStill) {
      for (Clock::time_point& heard : heard_) {
        if (heard != kNever && heard != kEnded) heard = std::min(now, heard + (now - before));
      }
    }
    for (int rank = 0; rank < exchange_.ranks(); ++rank) {
      const Clock::time_point heard = heard_[std::size_t(rank)];
      if (heard == kNever || heard == kEnded || now - heard < silence_) continue;
      return exchange_.name(rank) + " is gone: nothing was heard of it for " +
             std::to_string(silence_.count()) + " s; the last checkpoint stays";
    }
    return "";
  }

 private:
  static constexpr Clock::time_point kNever{}, kEnded = Clock::time_point::max();
  static constexpr Clock::duration kStill = 4 * kBeat;
  const Exchange& exchange_;
  const std::chrono::seconds silence_;
  std::vector<Clock::time_point> heard_;  ///< by rank; kNever: it has not begun
  Clock::time_point asked_ = kNever;
};

}  // namespace millrace::engine
