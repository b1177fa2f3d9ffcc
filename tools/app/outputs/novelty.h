// Marks frames that are not as usual.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace millrace::app {

struct NoveltyOptions {
  double deviations = 4.0;        ///< from the mean, from which a frame is unexpected
  std::int64_t minimum = 1;       ///< unexpected frames in a row that make an event
  double cooldown = 0;            ///< seconds from an event's end in which none begins
  std::int64_t memory = 1000;     ///< frames that "usual" covers
  std::int64_t settling = 300;    ///< frames at the start that are never marked
  std::int64_t calm = 25;         ///< usual frames in a row that end an event
  double least_deviation = 0.05;  ///< of a logarithm; at 4, 5 % off is never unexpected
};

/// The running mean and deviation of a number's logarithm: the numbers are skewed, and fall by
/// decades during learning. An outlier is clamped to the threshold, so one strange frame does not
/// make the next one usual. What lasts becomes usual.
class Usual {
 public:
  /// How many deviations `value` is above the usual, which then follows it.
  double compare(double value, const NoveltyOptions& options);

 private:
  std::int64_t seen_ = 0;
  double mean_ = 0, variance_ = 0;
};

/// What is seen of a frame.
struct Sight {
  float loss = 0;
  double changed = -1;  ///< the share of the picture that is not as it was lately; below 0: unknown
  std::int64_t frame = 0;  ///< the frame's number at the source
  double seconds = 0;      ///< when it was filmed
};

/// A frame is unexpected if its loss is far above the usual, or for some frames far below (a frozen
/// picture is easy to predict), or if far more of the picture than usual has changed. If a scene
/// stays changed, its event ends by itself. One writer, which never allocates or blocks; getters
/// from any thread.
class Novelty {
 public:
  explicit Novelty(NoveltyOptions options = {}) : options_(options) {}

  /// Whether the frame is unexpected. One whose loss is not finite is.
  bool see(const Sight& now);

  /// The last frame's deviations from the usual; 0 while settling.
  double deviation() const { return deviation_.load(std::memory_order_relaxed); }
  /// Whether an event is going on: unexpected frames with few usual ones between.
  bool in_event() const { return in_event_.load(std::memory_order_relaxed); }
  std::int64_t marked() const { return marked_.load(std::memory_order_relaxed); }
  std::int64_t events() const { return events_.load(std::memory_order_relaxed); }
  /// The last event's first frame, by its number at the source; -1: none yet.
  std::int64_t event_began() const { return event_began_.load(std::memory_order_relaxed); }
  /// The largest deviation in the last event.
  double event_peak() const { return event_peak_.load(std::memory_order_relaxed); }

 private:
  double deviation_of(const Sight& now);
  void mark(double deviation, const Sight& now);

  const NoveltyOptions options_;
  std::int64_t seen_ = 0;
  std::int64_t usual_in_a_row_ = 0, unexpected_in_a_row_ = 0;
  std::int64_t began_ = -1;  ///< the first of the unexpected frames in a row
  double rests_until_ = -1;  ///< no event begins before
  double below_ = 0;         ///< running mean of the loss's deviations below the usual
  Usual loss_, changed_;
  std::atomic<double> deviation_{0}, event_peak_{0};
  std::atomic<bool> in_event_{false};
  std::atomic<std::int64_t> marked_{0}, events_{0}, event_began_{-1};
};

}  // namespace millrace::app
