#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/monitor/clock.h"
#include "engine/monitor/histogram.h"
#include "engine/monitor/overload.h"
#include "engine/monitor/tally.h"

namespace millrace::engine {

/// One stage's measurements. Written by its worker alone, read by any thread. A step is a stage's
/// work on one sample. Its time splits into compute (forward, backward, update), hand-off (moving
/// samples, activations and gradients) and waiting, which is no part of the stage's cost.
class StageMeter {
 public:
  enum class Part { compute, handoff, waiting };

  /// Begins a step. With minibatches of `group` samples, whose work can't be told apart, the next
  /// `group` steps share their time evenly. Records those before.
  void begin(Clock::time_point now, int group) {
    if (begun_ >= group) finish();
    ++begun_;
    last_ = now;
  }
  /// Adds the time since the last call to `part`.
  void lap(Part part, Clock::time_point now) {
    const std::int64_t passed = pass(now);
    if (part == Part::compute) compute_ns_ += passed;
    if (part == Part::handoff) handoff_ns_ += passed;
  }
  /// When begin(), lap() or pass() was last called. Worker's thread.
  Clock::time_point last() const { return last_; }
  void finish() {
    const int steps = std::exchange(begun_, 0);
    const std::int64_t compute = std::exchange(compute_ns_, 0),
                       handoff = std::exchange(handoff_ns_, 0);
    for (int i = 0; i < steps && compute > 0; ++i) record(compute / steps, handoff / steps);
  }
  void record(std::int64_t compute_ns, std::int64_t handoff_ns) {
    const std::int64_t busy = compute_ns + handoff_ns, budget = budget_ns_;
    all_.compute.record(compute_ns);
    all_.handoff.record(handoff_ns);
    all_.busy.record(busy);
    if (budget > 0 && busy > budget) all_.misses += 1;
    all_.busy_ns += busy;
    all_.steps += 1;
  }
  /// Returns the time since the last begin(), lap() or pass() without counting it.
  std::int64_t pass(Clock::time_point now) { return ns_of(now - std::exchange(last_, now)); }
  /// `age`: of the gradient, in frames; -1 while the pipeline drains, and for a local gradient
  /// alone: not counted.
  void updated(std::int64_t age) {
    all_.updates += 1;
    if (age >= 0) all_.ages.record(age);
  }
  void skipped() { all_.skipped += 1; }
  /// Any thread. 0: no deadline.
  void set_budget(std::int64_t ns) { budget_ns_ = ns; }
  /// Clears the histograms of times after the stage has changed. Only while no worker runs.
  void forget_times() {
    for (Histogram* times : {&all_.compute, &all_.handoff, &all_.busy}) times->clear();
  }
  /// All measurements, to be loaded with take() by this stage's meter in another process of this
  /// build, in which its worker does not run.
  std::string bytes() const {
    const Measurements copy = all_;
    return {reinterpret_cast<const char*>(&copy), sizeof copy};
  }
  void take(std::string_view bytes) {
    Measurements copy;
    std::memcpy(static_cast<void*>(&copy), bytes.data(), sizeof copy);
    all_ = copy;
  }

  struct Measurements {
    Histogram compute, handoff;
    Histogram busy;  ///< compute + hand-off
    Counter<std::int64_t> updates;
    Counter<std::int64_t> skipped;  ///< updates not applied: non-finite or discarded by the guard
    Counter<std::int64_t> misses;
    /// Steps and their compute + hand-off time, for means over any interval.
    Counter<std::int64_t> steps, busy_ns;
    /// Gradient ages: frames from the sample of its loss to that of its update, without the drain.
    Histogram ages;
  };
  const Measurements& measured() const { return all_; }

 private:
  Clock::time_point last_{};
  std::int64_t compute_ns_ = 0;
  std::int64_t handoff_ns_ = 0;
  int begun_ = 0;  ///< steps that share these times
  Counter<std::int64_t> budget_ns_;
  Measurements all_;
};

/// Times in milliseconds.
struct Reading {
  std::vector<double> stage;       ///< median compute time of each stage (mean of its replicas)
  std::vector<double> handoff;     ///< median hand-off of each stage
  std::vector<double> stage_busy;  ///< median of a step's compute + hand-off
  std::vector<std::int64_t> updates, skipped, misses;
  std::vector<std::int64_t> gradient_age;  ///< median age in frames, without the drain
  std::vector<std::pair<std::int64_t, std::int64_t>> gradient_age_spread;  ///< least and most
  double T = 0;  ///< sum of the stages' medians: one sample through all stages
  double T_over_N = 0;
  double bottleneck = 0;  ///< slowest stage's median compute + hand-off, divided by its replicas
  int bottleneck_stage = 0;
  /// From one prediction to the next; those of a minibatch, which come together, share its time.
  double step_p50 = 0, step_p99 = 0;
  double speedup_K = 0;  ///< T / step_p50: how many stages' worth of work runs at once
  double latency_p50 = 0, latency_p99 = 0, latency_max = 0;  ///< capture to prediction
  double F = 0, budget = 0;  ///< frames per second; 1/F in ms; 0: no rate to hold
  bool holds = true;         ///< bottleneck <= budget, or no budget
};

/// A meter for each stage's replicas, and the verdict. Any thread may read it.
class Monitor {
 public:
  /// `replicas`: of each stage. `fps`: F; 0: unknown. `group`: samples of a minibatch.
  Monitor(std::vector<int> replicas, double fps, int group = 1);
  /// Any thread.
  void set_fps(double fps);
  double fps() const { return fps_; }
  void forget_times() {
    for (StageMeter& meter : meters_) meter.forget_times();
  }

  StageMeter& meter(int index) { return meters_[std::size_t(index)]; }
  /// Records the prediction of a frame captured at `captured`. One thread at a time.
  void predicted(Clock::time_point captured, Clock::time_point now);

  /// Stage 0 requested a frame at `asked` and received it at `given`. One thread at a time.
  void admitted(Clock::time_point asked, Clock::time_point given);
  /// Counts time in which the stream waited for a target. Admitting worker's thread.
  void paused(Clock::duration waited) { paused_ += waited; }

  Reading read() const;
  Totals totals() const;
  Tally& tally() { return tally_; }
  std::int64_t trained() const { return tally_.counts().trained; }  ///< samples; any thread
  const Histogram& latency() const { return latency_; }             ///< capture to prediction

 private:
  std::vector<int> replicas_;  ///< [stages]
  int group_;
  Counter<double> fps_;
  std::vector<StageMeter> meters_;
  Clock::time_point last_prediction_{}, last_given_{};
  Clock::duration paused_{};  ///< since last_given_
  Counter<std::int64_t> frames_, frames_ns_;
  Tally tally_;
  Histogram period_, latency_;
};

}  // namespace millrace::engine
