// Tells systemd how the run is doing: alive means that frames are being learned from.
#pragma once

#include <chrono>   // when the last word was sent
#include <cstdint>  // frames
#include <string>   // status

namespace millrace::cli {

/// systemd's notifications (Type=notify, WatchdogSec=). A process that merely runs gets no word
/// through: only more trained frames do, so that a stuck camera, a stuck stage and a stuck main
/// thread all end in a restart. Outside of systemd every call does nothing. One thread.
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;

  /// Asks systemd's environment whether somebody listens, and how often he wants to hear.
  Watchdog();

  /// The source is open and the pipeline runs.
  void ready();
  /// To be called often with the number of frames trained so far and a line for `systemctl
  /// status`. Speaks at most four times in the time systemd allows, and only if `frames` has grown.
  void trained(std::int64_t frames, const std::string& status, Clock::time_point now);
  void trained(std::int64_t frames, const std::string& status = "") {
    trained(frames, status, Clock::now());
  }
  /// Training rests because somebody asked for it: alive, though no frame is trained.
  void paused(const std::string& status, Clock::time_point now = Clock::now());
  /// The pipeline drains and everything is saved.
  void stopping();

  /// Whether a word would be sent now if `frames` are trained: a status line costs something.
  bool due(std::int64_t frames, Clock::time_point now = Clock::now()) const {
    return listened_to_ && frames > told_ && now >= next_;
  }

 private:
  void speak(const std::string& status, Clock::time_point now);

  bool listened_to_;
  std::chrono::microseconds period_;  ///< between words
  std::int64_t told_ = 0;             ///< frames trained at the last word
  Clock::time_point next_{};
};

}  // namespace millrace::cli
