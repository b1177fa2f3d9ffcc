// Which frames a network that has learned what is usual could not predict.
#pragma once

#include <atomic>
#include <cstdint>

namespace millrace::app {

struct NoveltyOptions {
  double deviations = 4.0;        ///< above what is usual, from which a frame is unexpected
  std::int64_t memory = 1000;     ///< frames: "usual" is about the last so many
  std::int64_t settling = 300;    ///< frames at the start that are never marked
  std::int64_t calm = 25;         ///< usual frames in a row that end an event
  double least_deviation = 0.05;  ///< of the loss's logarithm: 5 % off is never unexpected at 4
};

/// Holds each loss against the running mean and deviation of the losses before it. Counted is the
/// logarithm: losses are skewed, and they fall by decades while the network learns. A loss far out
/// counts as if it were at the border, so that one strange frame does not make the next one usual,
/// but what lasts becomes usual: an event of a scene that stays changed ends by itself.
/// One writer, which never allocates or waits; the atomics from any thread.
class Novelty {
 public:
  explicit Novelty(NoveltyOptions options = {}) : options_(options) {}

  /// Whether the frame with this loss is unexpected. Not finite: it is.
  bool see(float loss);

  /// Of the last frame: deviations above the usual (below: negative); 0 while settling.
  double deviation() const { return deviation_.load(std::memory_order_relaxed); }
  /// Whether an event, a run of unexpected frames with few usual ones between, is going on.
  bool in_event() const { return in_event_.load(std::memory_order_relaxed); }
  std::int64_t marked() const { return marked_.load(std::memory_order_relaxed); }
  std::int64_t events() const { return events_.load(std::memory_order_relaxed); }
  /// The number of the last event's first frame: 0 is the first frame seen; -1: none yet.
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
