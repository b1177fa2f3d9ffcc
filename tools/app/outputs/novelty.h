// Marks frames that the network predicts far worse than usual.
#pragma once

#include <atomic>
#include <cstdint>

namespace millrace::app {

struct NoveltyOptions {
  double deviations = 4.0;        ///< above the mean, from which a frame is unexpected
  std::int64_t memory = 1000;     ///< frames that "usual" covers
  std::int64_t settling = 300;    ///< frames at the start that are never marked
  std::int64_t calm = 25;         ///< usual frames in a row that end an event
  double least_deviation = 0.05;  ///< of the loss's logarithm; at 4, 5 % off is never unexpected
};

/// Compares each loss with the running mean and deviation of the losses before it, by logarithm,
/// since losses are skewed and fall by decades during learning. An outlier is clamped to the
/// threshold, so one strange frame does not make the next one usual. What lasts becomes usual: if a
/// scene stays changed, its event ends by itself. One writer, which never allocates or blocks;
/// getters from any thread.
class Novelty {
 public:
  explicit Novelty(NoveltyOptions options = {}) : options_(options) {}

  /// Whether the frame with this loss is unexpected. A loss that is not finite is.
  bool see(float loss);

  /// The last frame's deviations above the usual; 0 while settling.
  double deviation() const { return deviation_.load(std::memory_order_relaxed); }
  /// Whether an event is going on: unexpected frames with few usual ones between.
  bool in_event() const { return in_event_.load(std::memory_order_relaxed); }
  std::int64_t marked() const { return marked_.load(std::memory_order_relaxed); }
  std::int64_t events() const { return events_.load(std::memory_order_relaxed); }
  /// The last event's first frame, counted from 0; -1: none yet.
  std::int64_t event_began() const { return event_began_.load(std::memory_order_relaxed); }
  /// The largest deviation in the last event.
  double event_peak() const { return event_peak_.load(std::memory_order_relaxed); }

 private:
  void mark(double deviation);

  const NoveltyOptions options_;
  std::int64_t seen_ = 0;
  std::int64_t usual_in_a_row_ = 0;
  double mean_ = 0, variance_ = 0;  ///< of the loss's logarithm
  std::atomic<double> deviation_{0}, event_peak_{0};
  std::atomic<bool> in_event_{false};
  std::atomic<std::int64_t> marked_{0}, events_{0}, event_began_{-1};
};

}  // namespace millrace::app
