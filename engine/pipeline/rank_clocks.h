// How far other ranks' clocks are ahead of this one's, by letters that go to and fro.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "engine/monitor/clock.h"

namespace millrace::engine {

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
