// Monotonic time from time stamps that may jump, repeat or be missing.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace millrace::io {

/// Maps a source's stamps to strictly growing ones. Plausible steps are kept. If stamps are
/// missing, restart or jump, time advances by the time that really passed, or by one period.
/// Thread-bound.
class Timeline {
 public:
  using nanoseconds = std::chrono::nanoseconds;

  static constexpr std::size_t kWindow = 31;  ///< recent steps that define the usual one

  /// `period`: between frames, by the source; 0: unknown. `slack`: a stamp is a jump if it runs
  /// ahead of the time that really passed by more than this and by more than a few periods, or goes
  /// back by more than this.
  Timeline(nanoseconds period, nanoseconds slack);

  /// The stamp of the next frame. `elapsed`: clock time since the last one; 0 if that means
  /// nothing, as for files.
  nanoseconds map(nanoseconds pts, nanoseconds elapsed = nanoseconds(0));
  /// The next stamp is of another connection or another pass over a file.
  void broke_off() { broken_off_ = true; }

  /// The recent time between two frames if none is lost.
  nanoseconds usual() const { return usual_; }
  /// Frames a second by the source, or else by the stamps; 0 until enough stamps have been seen.
  double rate() const {
    const nanoseconds step = period_ > nanoseconds(0) ? period_ : usual_;
    return rate_known_ ? 1e9 / double(step.count()) : 0.0;
  }
  /// An estimate of the frames missing in gaps between stamps, breaks included. Too high or too low
  /// after the stream changes its rate, until the new rate is the usual one.
  std::int64_t lost() const { return lost_; }

 private:
  bool is_jump(nanoseconds step, nanoseconds elapsed) const;
  void count_lost(nanoseconds step);
  void learn(nanoseconds step);

  nanoseconds made_up() const { return period_ > nanoseconds(0) ? period_ : usual_; }

  const nanoseconds period_;
  const nanoseconds slack_;
  bool rate_known_;    // the source's, or enough steps have been seen
  nanoseconds usual_;  // between two frames
  std::array<nanoseconds, kWindow> steps_{};
  std::size_t seen_ = 0;  // steps learned from

  bool started_ = false;
  bool broken_off_ = false;
  nanoseconds source_{0};  // the last stamp as it came
  nanoseconds last_{0};    // the last stamp as it went out
  nanoseconds offset_{0};  // between the two
  nanoseconds late_{0};    // behind the usual rate by less than a frame
  std::int64_t lost_ = 0;
};

}  // namespace millrace::io
