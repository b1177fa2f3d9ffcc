#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "engine/monitor/monitor.h"

namespace millrace::engine {

/// Frames by outcome, of a run or a window: received = trained + dropped + rejected + in_flight.
struct FrameCounts {
  std::int64_t received = 0;
  std::int64_t trained = 0;
  std::int64_t dropped = 0;         ///< replaced by a newer one, or predicted only
  std::int64_t predicted_only = 0;  ///< of the dropped
  /// Broken, without a target, or in a minibatch with such a frame or that the stream did not fill.
  std::int64_t rejected = 0;
  std::int64_t without_target = 0;  ///< of the rejected: predicted, but without a target
  std::int64_t incomplete = 0;  ///< of the rejected: predicted, in a minibatch with such a frame
  std::int64_t replayed = 0;    ///< trained on again; in no other count
  std::int64_t predicted() const { return trained + predicted_only + without_target + incomplete; }
  std::int64_t in_flight() const { return received - trained - dropped - rejected; }
};

struct Verdict {
  bool judged = false;  ///< there is a rate to hold, and frames were trained on
  bool holds = true;    ///< every frame of the window was trained on in time
  double window_s = 0;
  FrameCounts window;
  std::string reason;  ///< one clause, for people
};

/// The rate holds if the slowest stage with its hand-off meets 1/F, no frame was dropped or only
/// predicted, and `late` is false (the mean load is within 1/F).
Verdict judge(const Reading& reading, const FrameCounts& window, double window_s, bool late);

/// "T/N 12.3 ms, slowest stage 15.1 ms of 1/F 100 ms: HOLDS", or "FAILS (of 20 frames 1 dropped)".
std::string rule_text(const Reading& reading, const Verdict& verdict);

/// Judges a run's last kWindow, from its first trained frame. No verdict before that, or once none
/// was trained for 5 s and three periods. note(): one thread; verdict(): any.
class RealTime {
 public:
  static constexpr std::chrono::seconds kWindow{10};

  void note(const FrameCounts& now, bool late, Clock::time_point time = Clock::now());
  /// Instead of note() while a viewer has paused the run: what is dropped until it learns again
  /// does not count.
  void pause(const FrameCounts& now, Clock::time_point time = Clock::now());
  Verdict verdict(const Reading& reading) const;
  /// Whether a frame had been trained on at the last note().
  bool began() const;

 private:
  /// Leaves out the time since the last call.
  void leave_out(const FrameCounts& now, Clock::time_point time);

  mutable std::mutex mutex_;
  std::deque<std::pair<Clock::time_point, FrameCounts>> seen_;  ///< oldest first
  Clock::time_point resumes_by_{};                              ///< after a pause
  Clock::time_point trained_{};                                 ///< of the latest trained frame
  bool late_ = false;
};

}  // namespace millrace::engine
