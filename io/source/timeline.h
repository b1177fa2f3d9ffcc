#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include "io/source/source_kinds.h"  // frame_period, kLatest

namespace millrace::io {

/// Maps a source's stamps to strictly growing ones. Plausible steps are preserved. If stamps are
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
        usual_(rate_known_ ? period_ : frame_period(rate_or_default(0.0))),
        grid_(usual_) {
    steps_.fill(usual_);
  }

  /// The next frame's stamp. `elapsed`: clock time since the previous frame; 0: unknown (files).
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
      if (elapsed > nanoseconds(0)) count_lost(elapsed);
      delayed_ = 0;
    } else {
      const bool stamped = step != nanoseconds(0);
      if (!stamped) next = last_ + (elapsed > nanoseconds(0) ? elapsed : made_up());
      stamps_ = stamps_ || stamped;  // else the source has no stamps
      if (stamps_ || elapsed > nanoseconds(0)) count_lost(stamps_ ? step : elapsed);
      learn(stamped ? step : elapsed, elapsed > nanoseconds(0));
    }
    return last_ = std::max(next, last_ + kLeastStep);
  }
  /// Announces that the next stamp is from another connection or another pass over a file.
  void broke_off() { broken_off_ = true; }
  /// The source's frame time by another connection; 0: unknown, so that what is known stays.
  void set_period(nanoseconds period) {
    period = std::min(period, nanoseconds(kLongestPeriod));
    if (period <= nanoseconds(0) || period == period_) return;
    period_ = usual_ = grid_ = period;
    rate_known_ = true;
    steps_.fill(usual_);
    seen_ = 0;
    late_ = differs_for_ = nanoseconds(0);
  }

  nanoseconds usual() const { return usual_; }
  /// Frames per second, from the source or from the stamps; 0 until enough stamps have been seen.
  double rate() const {
    return rate_known_ ? 1e9 / double((differs() ? grid_ : made_up()).count()) : 0.0;
  }
  /// Whether the stamps have lastingly shown another rate than the source's, which rate() then is.
  bool differs() const { return differs_for_ > kLasting; }
  /// Estimated frames missing in gaps between stamps, breaks included. Inexact after a change of
  /// rate until the new rate is the usual one.
  std::int64_t lost() const { return lost_; }

 private:
  // A step of up to this many periods is no jump: some streams have very few frames per second.
  static constexpr int kPatience = 10;
  // An unknown rate is known after so many steps and, if live, so much time: more than a burst.
  static constexpr std::size_t kEnough = 8;  ///< steps
  static constexpr nanoseconds kLongEnough{250'000'000};
  static constexpr int kBursts = 5;  ///< all time over that within bursts, at least
  static constexpr nanoseconds kLeastStep{1000};
  static constexpr nanoseconds kLasting{3'000'000'000};

  // The mean of the steps near the median, so that gaps don't count and jitter cancels out; of all
  // steps where few are near it, since frame times then alternate.
  // `by_time`: the median is taken over time rather than over steps, so that frames that come in a
  // burst, having waited for their reader, don't count either. Where nearly all time is between
  // bursts, as behind a proxy that buffers, it is the mean of all steps.
  static nanoseconds usual_step(std::span<const nanoseconds> steps, bool by_time = false) {
    std::array<nanoseconds, kWindow> sorted;
    const auto end = std::copy(steps.begin(), steps.end(), sorted.begin());
    std::sort(sorted.begin(), end);
    const nanoseconds all = std::accumulate(sorted.begin(), end, nanoseconds(0));
    nanoseconds median = sorted[steps.size() / 2];
    if (by_time) {
      nanoseconds left = all / 2;
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
    const bool alternates = 5 * near < 3 * std::ssize(steps);  // a third may be lost
    if (!by_time && (kBursts * sum < all || alternates)) return all / std::ssize(steps);
    return sum / near;
  }
  bool is_jump(nanoseconds step, nanoseconds elapsed) const {
    const nanoseconds patience = std::max(slack_, kPatience * usual_);
    return step < -slack_ || step > elapsed + std::min(patience, kPatience * kLongestPeriod);
  }
  // Lateness is summed up first, since jitter makes one step long and the next one short. Frames
  // that seemed lost and catch up were only delayed: a busy server stamps them as they leave.
  void count_lost(nanoseconds step) {
    if (!rate_known_) return;
    late_ += step - grid_;
    const nanoseconds most = late_ + (late_ > nanoseconds(0) ? grid_ : -grid_) / 4;
    const std::int64_t missing = std::max<std::int64_t>(most / grid_, -delayed_);
    if (missing != 0) quiet_ = 0;
    lost_ += missing;
    delayed_ = ++quiet_ > 8 * kWindow ? 0 : delayed_ + missing;
    late_ = std::max(late_ - missing * grid_, -grid_);
    // Rates are inexact, most of all those from stamps: fractions of a frame decay.
    late_ -= late_ / (period_ > nanoseconds(0) ? 256 : 4);
  }
  /// Steps that vary much define no frame time if the source does. A change of rate loses nothing.
  void regulate() {
    const auto near = std::ranges::count_if(
        steps_, [&](nanoseconds step) { return std::chrono::abs(step - usual_) <= usual_ / 50; });
    if (period_ > nanoseconds(0) && (seen_ < kWindow || 2 * near < std::ssize(steps_))) return;
    if (std::chrono::abs(usual_ - grid_) > grid_ / 4) {
      lost_ -= std::exchange(delayed_, 0);
      late_ = nanoseconds(0);
    }
    grid_ = usual_;
  }
  void learn(nanoseconds step, bool live) {
    if (step <= nanoseconds(0)) return;
    steps_[seen_++ % steps_.size()] = step;
    learned_ += step;
    if (rate_known_) {
      usual_ = usual_step(steps_);
      regulate();
      const bool differs =
          period_ > nanoseconds(0) && std::chrono::abs(grid_ - period_) > period_ / 4;
      differs_for_ = differs ? differs_for_ + step : nanoseconds(0);
    } else if (seen_ >= kEnough && (!live || learned_ >= kLongEnough)) {
      // these few steps stand for all
      usual_ = usual_step(std::span(steps_).first(std::min(seen_, steps_.size())), live);
      steps_.fill(usual_);
      grid_ = usual_;
      rate_known_ = true;
    }
  }

  nanoseconds made_up() const { return period_ > nanoseconds(0) ? period_ : usual_; }

  nanoseconds period_;
  const nanoseconds slack_;
  bool rate_known_;    // from the source, or after enough steps
  nanoseconds usual_;  // frame time
  nanoseconds grid_;   // the frame time that losses are counted by, once it is certain
  std::array<nanoseconds, kWindow> steps_{};
  std::size_t seen_ = 0;        // steps learned from
  nanoseconds learned_{0};      // their sum
  nanoseconds differs_for_{0};  // how long the grid has been far from the period

  bool started_ = false;
  bool stamps_ = false;
  bool broken_off_ = false;
  nanoseconds source_{0};  // last input stamp
  nanoseconds last_{0};    // last output stamp
  nanoseconds offset_{0};  // last_ - source_
  nanoseconds late_{0};    // behind the usual rate, less than a frame
  std::int64_t lost_ = 0;
  std::int64_t delayed_ = 0;  // of lost_, recently: may still arrive
  std::size_t quiet_ = 0;     // steps since the last delayed one
};

}  // namespace millrace::io
