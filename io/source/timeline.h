#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <span>

#include "io/source/source_kinds.h"  // frame_period, kLatest

namespace millrace::io {

/// Maps a source's stamps to strictly growing ones. Plausible steps are kept. If stamps are
/// missing, restart or jump, time advances by the elapsed time or by one period. Thread-bound.
class Timeline {
 public:
  using nanoseconds = std::chrono::nanoseconds;

  static constexpr std::size_t kWindow = 31;  ///< recent steps that define the usual one

  /// `period`: the source's frame time; 0: unknown. `slack`: a stamp has jumped if it goes back by
  /// more than this, or is ahead of the elapsed time by more than both this and a few periods.
  Timeline(nanoseconds period, nanoseconds slack)
      : period_(std::min(period, nanoseconds(kLongestPeriod))),
        slack_(slack),
        rate_known_(period > nanoseconds(0)),
        usual_(rate_known_ ? period_ : frame_period(rate_or_default(0.0))) {
    steps_.fill(usual_);
  }

  /// The next frame's stamp. `elapsed`: clock time since the last one; 0: unknown, as for files.
  nanoseconds map(nanoseconds pts, nanoseconds elapsed = nanoseconds(0)) {
    pts = std::clamp(pts, -kLatest, kLatest);
    const nanoseconds step = pts - source_;
    source_ = pts;
    if (!started_) {
      started_ = true;
      return last_ = pts;
    }
    nanoseconds next = pts + offset_;
    if (broken_off_ || is_jump(step, elapsed)) {
      broken_off_ = false;
      next = last_ + std::max(made_up(), elapsed);
      offset_ = next - pts;
      count_lost(elapsed);
    } else {
      const bool stamped = step != nanoseconds(0);
      if (!stamped) next = last_ + (elapsed > nanoseconds(0) ? elapsed : made_up());
      count_lost(stamped ? step : elapsed);
      learn(stamped ? step : elapsed, elapsed > nanoseconds(0));
    }
    return last_ = std::max(next, last_ + kLeastStep);
  }
  /// The next stamp is from another connection or another pass over a file.
  void broke_off() { broken_off_ = true; }

  /// The recent frame time without losses.
  nanoseconds usual() const { return usual_; }
  /// Frames per second by the source or else the stamps; 0 until enough stamps have been seen.
  double rate() const { return rate_known_ ? 1e9 / double(made_up().count()) : 0.0; }
  /// Estimated frames missing in gaps between stamps, breaks included. Inexact after a change of
  /// rate until the new rate is the usual one.
  std::int64_t lost() const { return lost_; }

 private:
  // A step of up to this many periods is no jump: some streams have very few frames per second.
  static constexpr int kPatience = 10;
  // What determines an unknown rate; of a live source, longer than a burst.
  static constexpr std::size_t kEnough = 8;  ///< steps
  static constexpr nanoseconds kLongEnough{250'000'000};
  static constexpr nanoseconds kLeastStep{1000};

  // The mean of the steps near the median, so that gaps don't count and jitter cancels out.
  // `by_time`: steps no longer than the median make up half of the time, not of all steps: frames
  // that come in a burst, having waited for their reader, don't count either.
  static nanoseconds usual_step(std::span<const nanoseconds> steps, bool by_time = false) {
    std::array<nanoseconds, kWindow> sorted;
    const auto end = std::copy(steps.begin(), steps.end(), sorted.begin());
    std::sort(sorted.begin(), end);
    nanoseconds median = sorted[steps.size() / 2];
    if (by_time) {
      nanoseconds left = std::accumulate(sorted.begin(), end, nanoseconds(0)) / 2;
      auto step = sorted.begin();
      while (left > *step) left -= *step++;
      median = *step;
    }
    nanoseconds sum(0);
    int near = 0;
    for (const nanoseconds step : steps) {
      if (5 * step > 9 * median || 5 * step < median) continue;
      sum += step;
      ++near;
    }
    return sum / near;
  }
  bool is_jump(nanoseconds step, nanoseconds elapsed) const {
    const nanoseconds patience = std::max(slack_, kPatience * usual_);
    return step < -slack_ || step > elapsed + std::min(patience, kPatience * kLongestPeriod);
  }
  // Lateness is summed up first, since jitter makes one step long and the next one short.
  void count_lost(nanoseconds step) {
    if (!rate_known_ || step <= nanoseconds(0)) return;
    late_ += step - usual_;
    const std::int64_t missing = (late_ + usual_ / 4) / usual_;
    if (missing > 0) {
      lost_ += missing;
      late_ -= missing * usual_;
    }
    late_ = std::max(late_, -usual_);
    late_ -= late_ / 4;  // rates are inexact: fractions of a frame are forgotten over time
  }
  void learn(nanoseconds step, bool live) {
    if (step <= nanoseconds(0)) return;
    steps_[seen_++ % steps_.size()] = step;
    learned_ += step;
    if (rate_known_) {
      usual_ = usual_step(steps_);
    } else if (seen_ >= kEnough && (!live || learned_ >= kLongEnough)) {
      // Unknown rate: these few steps stand for all.
      usual_ = usual_step(std::span(steps_).first(std::min(seen_, steps_.size())), live);
      steps_.fill(usual_);
      rate_known_ = true;
    }
  }

  nanoseconds made_up() const { return period_ > nanoseconds(0) ? period_ : usual_; }

  const nanoseconds period_;
  const nanoseconds slack_;
  bool rate_known_;    // from the source, or after enough steps
  nanoseconds usual_;  // frame time
  std::array<nanoseconds, kWindow> steps_{};
  std::size_t seen_ = 0;    // steps learned from
  nanoseconds learned_{0};  // their sum

  bool started_ = false;
  bool broken_off_ = false;
  nanoseconds source_{0};  // last input stamp
  nanoseconds last_{0};    // last output stamp
  nanoseconds offset_{0};  // between the two
  nanoseconds late_{0};    // behind the usual rate, less than a frame
  std::int64_t lost_ = 0;
};

}  // namespace millrace::io
