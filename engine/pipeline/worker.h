#pragma once

#include <readerwriterqueue/readerwriterqueue.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "capture/step.h"
#include "engine/monitor/monitor.h"
#include "engine/pipeline/shared.h"
#include "engine/trace/action_log.h"

namespace millrace::engine {

/// A stage as its worker runs it. Thread-bound.
struct WorkerStage {
  capture::Step* step = nullptr;
  StageMeter* meter = nullptr;
  ActionTrack* track = nullptr;  ///< may be null
  int samples = 1;               ///< that an update covers and that share its time
  std::int64_t age = 0;          ///< of gradients in the steady state, in samples
  std::int64_t newest = 0;       ///< the sample last forwarded
  std::int64_t versions = 0;     ///< updates of its weights so far
  Token gradient{};              ///< the last one received; `sample`: the one it is applied on
  std::vector<Fate> fates{};     ///< [slot]: of the samples that went backward

  /// Samples that the next update covers.
  struct Update {
    Fate fate = Fate::trained;  ///< the worst of its samples
    Alarm alarm = Alarm::none;  ///< the worst of its gradients
    bool forwarded = false;     ///< the stage has forwarded a sample since the last update
  } next{};
  std::int64_t asked = 0;    ///< updates requested from the step
  std::int64_t skipped = 0;  ///< requested updates known to be skipped

  /// The host's part of a launch group: its time, and how many samples it forwards.
  struct Group {
    std::int64_t host_ns = 0;
    int forwards = 0;
  };
  // A step that computes at once is timed by laps; one that defers, by the launch groups that its
  // device has finished.
  Group group{}, done{};       ///< the current one; those not recorded yet
  std::int64_t device_ns = 0;  ///< of `done`

  /// Counts the time since the last call as `part`.
  void lap(StageMeter::Part part, Clock::time_point now = Clock::now()) {
    if (part == StageMeter::Part::waiting && track) track->waited(meter->last(), now);
    if (!step->defers()) return meter->lap(part, now);
    const std::int64_t passed = meter->pass(now);
    if (part != StageMeter::Part::waiting) group.host_ns += passed;
  }
  /// Counts a group that the device has finished; its samples are recorded with all of an update's.
  void record(const Group& finished) {
    device_ns += step->duration_ns();
    done.host_ns += finished.host_ns;
    done.forwards += finished.forwards;
    if (done.forwards < samples) return;
    const auto [host_ns, steps] = std::exchange(done, {});
    const std::int64_t device = std::exchange(device_ns, 0);
    // The host prepares one group while the device runs another: only its excess counts.
    const std::int64_t host = std::max<std::int64_t>(0, host_ns - device);
    for (int i = 0; i < steps; ++i) meter->record(device / steps, host / steps);
  }
};

/// An event of a stage that is reported once the launch that it belongs to has finished.
struct Completion {
  enum class Kind {
    timed,      ///< the launch group's time is known
    predicted,  ///< the prediction is ready, and the loss unless targets come late
    compared,   ///< the loss with a late target is ready
    released,   ///< the stage is done with the sample
    updated,    ///< the weights are updated, unless the step skipped it
    left_out,   ///< an update that the guard or a lack of gradients prevented
  };
  Kind kind = Kind::timed;
  Action action{};
  WorkerStage::Group group{};  ///< timed: the launch group
  std::int64_t staleness = 0;  ///< updated: age of the gradient, see StageMeter
  Fate fate = Fate::trained;   ///< updated, left_out: of the samples that the update covers
  std::int64_t launch = 0;     ///< number of the launch
  Clock::time_point launched{};
};

/// A worker's launched but uncompleted events, in order, and the current launch group's tokens.
/// Thread-bound. Allocates only if more is in flight than `slots` samples need.
class Launches {
 public:
  /// [stage]; must outlive this
  Launches(std::vector<WorkerStage>& stages, int slots)
      : stages_(stages), slots_(slots), launched_(16 * std::size_t(slots) + 16) {
    tokens_.reserve(4 * std::size_t(slots) + 8);
    group_.reserve(16 * std::size_t(slots) + 16);
  }

  void send(Channel& to, const Token& token) { tokens_.emplace_back(&to, token); }
  void complete(const Completion& completion) { group_.push_back(completion); }
  bool empty() const { return group_.empty() && !launched_.peek(); }

  /// Launches the group's work, then sends its tokens until done or `give_up(sample)`.
  template <class GiveUp>
  void end_group(const GiveUp& give_up) {
    for (Completion& completion : group_) {
      capture::Step& step = step_of(completion);
      completion.launch = step.launch();
      if (step.defers()) completion.launched = Clock::now();
      launched_.enqueue(completion);
    }
    group_.clear();
    for (const auto& [channel, token] : tokens_)
      channel->send(token, [&, sample = token.sample] { return give_up(sample); });
    tokens_.clear();
  }

  /// The oldest event if its launch is over; otherwise null. Valid until pop().
  const Completion* finished() {
    const Completion* const oldest = launched_.peek();
    if (!oldest) return nullptr;
    capture::Step& step = step_of(*oldest);
    if (oldest->kind != Completion::Kind::predicted || !step.defers())
      return step.over(oldest->launch) ? oldest : nullptr;
    // A prediction need not wait for the rest of its launch.
    if (!step.shown(int(oldest->action.sample % slots_)) && !step.over(oldest->launch))
      return nullptr;
    showing_ += (Clock::now() - oldest->launched - showing_) / 8;
    return oldest;
  }
  void pop() { launched_.pop(); }

  /// How long to wait before polling for finished work again.
  std::chrono::microseconds patience() const {
    if (empty()) return kPatience;
    const Completion* const next = launched_.peek();
    if (!next || next->kind != Completion::Kind::predicted) return kImpatience;
    // A sleep overshoots by about its length: spin shortly before a prediction is due.
    const Clock::duration due = showing_ - (Clock::now() - next->launched);
    const bool soon = due < 2 * kImpatience && due > -showing_ - 2 * kImpatience;
    return soon ? std::chrono::microseconds(0) : kImpatience;
  }

 private:
  capture::Step& step_of(const Completion& completion) const {
    return *stages_[std::size_t(completion.action.stage)].step;
  }

  std::vector<WorkerStage>& stages_;
  const int slots_;
  std::vector<std::pair<Channel*, Token>> tokens_;  ///< of the current group
  std::vector<Completion> group_;                   ///< of the current group
  moodycamel::ReaderWriterQueue<Completion> launched_;
  Clock::duration showing_{};  ///< from launch to prediction, running mean
};

/// Runs worker `index`'s program, on its thread. Returns when the stream is over and the worker's
/// actions are done, or shared.stop is set.
void run_worker(Shared& shared, int index);

}  // namespace millrace::engine
