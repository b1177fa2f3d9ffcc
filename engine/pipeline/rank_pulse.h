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

/// Detects lost ranks by their silence. Under Exchange::mutex().
class RankPulse {
 public:
  static constexpr std::chrono::milliseconds kBeat{500};  ///< heartbeat interval

  /// `silence`: time after which a rank is lost. `exchange` must outlive this.
  RankPulse(const Exchange& exchange, std::chrono::seconds silence)
      : exchange_(exchange), silence_(silence), heard_(std::size_t(exchange.ranks())) {}

  void heard(int rank) {
    Clock::time_point& heard = heard_[std::size_t(rank)];
    if (heard != kEnded) heard = Clock::now();
  }
  /// `rank` may be silent from now on.
  void ended(int rank) { heard_[std::size_t(rank)] = kEnded; }
  /// The rank that has begun, not ended, and been silent for too long; "" if none. Polled by
  /// waiting threads: time without a poll does not count, since this process was stopped then (as
  /// by SIGSTOP) and others may have been, too.
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
      return "lost " + exchange_.name(rank) + ": no message for " +
             std::to_string(silence_.count()) + " s; the last checkpoint is kept";
    }
    return "";
  }

 private:
  static constexpr Clock::time_point kNever{}, kEnded = Clock::time_point::max();
  static constexpr Clock::duration kStill = 4 * kBeat;
  const Exchange& exchange_;
  const std::chrono::seconds silence_;
  std::vector<Clock::time_point> heard_;  ///< [rank]; kNever: it has not begun
  Clock::time_point asked_ = kNever;
};

/// Clock offsets as in NTP (RFC 5905, section 8): the shortest round trip gives the best estimate,
/// off by at most half of it. Ranks of a machine share a clock. Thread-bound. time_point(): never.
class RankClocks {
 public:
  /// `clock`: its identity; see clock_of_this_machine().
  explicit RankClocks(int ranks, std::uint64_t clock = 0)
      : peers_(std::size_t(ranks)), clock_(clock) {}

  /// Sent with each heartbeat.
  struct Beat {
    Clock::time_point sent;    ///< by the sender's clock
    Clock::time_point echoed;  ///< `sent` of the receiver's last letter, by the receiver's clock
    Clock::duration held{};    ///< time since that letter arrived
    std::uint64_t clock = 0;   ///< the sender's; 0: unknown
  };

  Beat beat_for(int rank, Clock::time_point now) const {
    const Peer& peer = peers_[std::size_t(rank)];
    return {now, peer.sent, now - peer.heard, clock_};
  }
  /// Returns whether to answer at once, so that the other side soon knows the offset.
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
    Clock::time_point sent, heard;  ///< of the last letter: by the peer's clock, by ours
    Clock::duration shortest{};
    std::optional<Clock::duration> ahead;
  };
  std::vector<Peer> peers_;
  const std::uint64_t clock_;
};

/// Equal for processes that read the same clock: same boot of a machine, same time namespace.
inline std::uint64_t clock_of_this_machine() {
  std::string name;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> name;
  std::error_code none;
  name += std::filesystem::read_symlink("/proc/self/ns/time", none).string();
  return std::hash<std::string>()(name);
}

}  // namespace millrace::engine
