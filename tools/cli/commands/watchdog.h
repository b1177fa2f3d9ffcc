#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace millrace::cli {

/// systemd's notifications (Type=notify, WatchdogSec=). Notifies only if more frames were trained,
/// so a stuck camera, stage or main thread leads to a restart. No-op without systemd. One thread.
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;

  /// Reads from the environment whether systemd listens and its watchdog interval.
  Watchdog();

  void ready();
  /// Call it often, with the number of frames trained and a line for `systemctl status`. Notifies
  /// at most four times within WatchdogSec, and only if `frames` has grown.
  void trained(std::int64_t frames, const std::string& status,
               Clock::time_point now = Clock::now());
  /// Call while training is paused on request: alive, though no frame is trained.
  void paused(const std::string& status, Clock::time_point now = Clock::now());
  /// Call when the pipeline drains and everything is saved.
  void stopping();

  /// Whether trained() would notify now; composing a status line is costly.
  bool due(std::int64_t frames, Clock::time_point now = Clock::now()) const {
    return listened_to_ && frames > told_ && now >= next_;
  }

 private:
  void speak(const std::string& status, Clock::time_point now);

  bool listened_to_;
  std::chrono::microseconds period_;  ///< between notifications
  std::int64_t told_ = 0;             ///< frames trained at the last notification
  Clock::time_point next_{};
};

}  // namespace millrace::cli
