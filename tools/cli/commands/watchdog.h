#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace millrace::cli {

/// systemd's notifications (Type=notify, WatchdogSec=). Notifies only if more frames were
/// predicted, so a stuck camera, stage or main thread leads to a restart. No-op without systemd.
/// One thread.
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;

  /// Reads from the environment whether systemd listens and its watchdog interval.
  Watchdog();

  void ready();
  /// Call it often, with the number of frames predicted and what gives a line for `systemctl
  /// status`. Notifies at most four times within WatchdogSec, and only if `frames` has grown or
  /// training is `paused` on request.
  void look(std::int64_t frames, bool paused, const std::function<std::string()>& status,
            Clock::time_point now = Clock::now());
  /// Call when the pipeline drains and everything is saved.
  void stopping();

 private:
  const bool listened_to_;
  std::chrono::microseconds period_{1'000'000};  ///< between notifications
  std::int64_t told_ = 0;                        ///< frames at the last notification
  Clock::time_point next_{};
};

}  // namespace millrace::cli
