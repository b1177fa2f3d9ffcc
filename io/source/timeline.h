// One time that only goes forward, made of stamps that may not.
#pragma once

#include <array>    // recent steps
#include <chrono>   // stamps
#include <cstdint>  // counts

namespace millrace::io {

/// Maps a source's stamps to strictly growing ones. Steps that can be true are kept; where stamps
/// are missing, start anew or jump, time goes on by what really passed, or by one period.
/// Thread-bound.
class Timeline {
 public:
  using nanoseconds = std::chrono::nanoseconds;

  static constexpr std::size_t kWindow = 31;  ///< recent steps that say what is usual

  /// `period`: between frames, as the source says; 0: it doesn't say. `slack`: a stamp that runs
  /// ahead of the time really passed by more than this (and by more than a few periods), or falls
  /// back by more than this, is a jump.
  Timeline(nanoseconds period, nanoseconds slack);

  /// The stamp of the next frame. `elapsed`: what passed by the clock since the last one; 0 where
  /// that says nothing, as with files.
  nanoseconds map(nanoseconds pts, nanoseconds elapsed = nanoseconds(0));
  /// The next stamp has nothing to do with those before it: another connection, another pass.
  void broke_off() { broken_off_ = true; }

  /// What passes between two frames if none is lost, of late.
  nanoseconds usual() const { return usual_; }
  /// Frames a second: as the source says; else what stamps show, 0 until enough have been seen.
  double rate() const {
    const nanoseconds step = period_ > nanoseconds(0) ? period_ : usual_;
    return rate_known_ ? 1e9 / double(step.count()) : 0.0;
  }
  /// Frames that gaps between stamps seem to have swallowed, at the usual rate, breaks included.
  /// An estimate: a stream that changes its rate is misjudged until the new rate is the usual one.
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
