// What letters between ranks tell of them: who is alive, and how far their clocks are ahead.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
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

/// As NTP does it (RFC 5905, section 8): the shortest round trip tells best, and its half is how
/// far the answer may be off; ranks of one machine have one clock. Thread-bound. A default
/// time_point: never.
class RankClocks {
 public:
  /// `clock`: which it is, as clock_of_this_machine().
  explicit RankClocks(int ranks, std::uint64_t clock = 0)
      : peers_(std::size_t(ranks)), clock_(clock) {}

  /// Goes with each letter.
  struct Beat {
    Clock::time_point sent;    ///< by the sender's clock
    Clock::time_point echoed;  ///< `sent` of the receiver's last letter, by the receiver's clock
    Clock::duration held{};    ///< since that had come
    std::uint64_t clock = 0;   ///< the sender's; 0: not known
  };

  Beat beat_for(int rank, Clock::time_point now) const {
    const Peer& peer = peers_[std::size_t(rank)];
    return {now, peer.sent, now - peer.heard, clock_};
  }
  /// Returns whether to answer at once, so that the other side soon knows.
  bool heard(int rank, const Beat& beat, Clock::time_point now) {
    Peer& peer = peers_[std::size_t(rank)];
    peer.sent = beat.sent;
    peer.heard = now;
    if (clock_ != 0 && beat.clock == clock_) {
      peer.ahead = Clock::duration::zero();
      return false;
    }
    if (beat.echoed == Clock::time_point{}) return true;
    const Clock::duration trip = now - beat.echoed - beat.held;
    if (!peer.ahead || trip < peer.shortest) {
      peer.shortest = trip;
      peer.ahead = beat.sent + trip / 2 - now;
    }
    return false;
  }
  std::optional<Clock::duration> ahead(int rank) const { return peers_[std::size_t(rank)].ahead; }

 private:
  struct Peer {
    Clock::time_point sent, heard;  ///< the last letter: by its clock, by ours
    Clock::duration shortest{};
    std::optional<Clock::duration> ahead;
  };
  std::vector<Peer> peers_;
  const std::uint64_t clock_;
};

/// Equal where processes read the same clock: of this boot of this machine, in this time namespace.
inline std::uint64_t clock_of_this_machine() {
  std::string name;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> name;
  std::error_code none;
  name += std::filesystem::read_symlink("/proc/self/ns/time", none).string();
  return std::hash<std::string>()(name);
}

}  // namespace millrace::engine
