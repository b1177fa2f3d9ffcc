#pragma once

#include <readerwriterqueue/readerwriterqueue.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "capture/step.h"
#include "engine/monitor/monitor.h"
#include "engine/pipeline/gateway.h"
#include "engine/pipeline/shared.h"
#include "engine/trace/action_log.h"

namespace millrace::engine {

/// Times a stage's steps. A step that computes at once is timed by laps; one that defers, by the
/// launch groups that its device has finished. Thread-bound.
class StepTimer {
 public:
  StepTimer() = default;
  /// `samples`: an update covers, which share its time. `track` may be null. All must outlive this.
  StepTimer(capture::Step& step, StageMeter& meter, ActionTrack* track, int samples)
      : step_(&step), meter_(&meter), track_(track), samples_(samples) {}

  /// Counts the time since the last call as `part`.
  void lap(StageMeter::Part part, Clock::time_point now = Clock::now()) {
    if (part == StageMeter::Part::waiting && track_) track_->waited(meter_->last(), now);
    if (!step_->defers()) return meter_->lap(part, now);
    const std::int64_t passed = meter_->pass(now);
    if (part != StageMeter::Part::waiting) host_ns_ += passed;
  }
  void forwarded() { ++forwards_; }

  /// The host's part of a launch group: its time, and how many samples it forwards.
  struct Group {
    std::int64_t host_ns = 0;
    int forwards = 0;
  };
  Group end_group() { return {std::exchange(host_ns_, 0), std::exchange(forwards_, 0)}; }
  /// Counts a group that the device has finished; its samples are recorded with all of an update's.
  void record(const Group& group) {
    device_ns_ += step_->duration_ns();
    done_.host_ns += group.host_ns;
    done_.forwards += group.forwards;
    if (done_.forwards < samples_) return;
    const auto [host_ns, steps] = std::exchange(done_, {});
    const std::int64_t device = std::exchange(device_ns_, 0);
    // The host prepares one group while the device runs another: only its excess counts.
    const std::int64_t host = std::max<std::int64_t>(0, host_ns - device);
    for (int i = 0; i < steps; ++i) meter_->record(device / steps, host / steps);
  }

 private:
  capture::Step* step_ = nullptr;
  StageMeter* meter_ = nullptr;
  ActionTrack* track_ = nullptr;
  int samples_ = 1;
  std::int64_t host_ns_ = 0;    ///< of the current group
  int forwards_ = 0;            ///< in the current group
  Group done_;                  ///< groups that are not recorded yet
  std::int64_t device_ns_ = 0;  ///< of those
};

/// A stage as its worker runs it. Thread-bound.
struct WorkerStage {
  capture::Step* step = nullptr;
  StageMeter* meter = nullptr;
  StepTimer timer{};
  std::int64_t age = 0;       ///< of gradients in the steady state, in samples
  std::int64_t newest = 0;    ///< the sample last forwarded
  std::int64_t versions = 0;  ///< updates of its weights so far
  Token gradient{};           ///< the last one received; `sample`: the one it is applied on
  std::vector<Fate> fates{};  ///< [slot]: of the samples that went backward

  /// Samples that the next update covers.
  struct Update {
    Fate fate = Fate::trained;  ///< the worst of its samples
    Alarm alarm = Alarm::none;  ///< the worst of its gradients
    bool forwarded = false;     ///< the stage has forwarded a sample since the last update
  } next{};
  std::int64_t asked = 0;    ///< updates requested from the step
  std::int64_t skipped = 0;  ///< requested updates known to be skipped

  /// Applies the gradients, rolls back on `alarm`, or, unless `learns`, skips the update. Returns
  /// whether the step was asked to update.
  bool apply(Alarm alarm, bool learns, bool guarded) {
    if (alarm == Alarm::roll_back) {
      step->roll_back();
    } else if (alarm == Alarm::discard || !learns) {
      step->skip_update();  // the version still advances
    } else {
      if (guarded && asked++ % LossGuard::kSnapshotEvery == 0) step->take_snapshot();
      step->update();
      return true;
    }
    return false;
  }

  /// Counts a finished update; the step may have skipped one that it `was_asked` for.
  void count(bool was_asked, bool had_gradient, std::int64_t gradient_age) {
    if (was_asked && step->skipped() == skipped) {
      meter->updated(gradient_age);
    } else if (had_gradient) {
      skipped += was_asked ? 1 : 0;
      meter->skipped();
    }
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
  StepTimer::Group group{};    ///< timed: the launch group
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

/// Runs one worker's program, on that worker's thread.
class Worker {
 public:
  Worker(Shared& shared, int index);

  /// Returns when the stream is over and the worker's actions are done, or shared.stop is set.
  void run();

 private:
  /// False if the action is skipped because one of its waits was given up.
  bool perform(const Lowered& next);
  void perform_watched(const Lowered& next);  ///< with logging and hooks
  void work(const Lowered& next);
  void give(const Action& action, const Signal& signal);
  std::int64_t version_of(const Action& action);  ///< updates in the weights it used or updated
  void take_gradient(const Action& action, const Token& token);
  void update(const Action& action);

  // Waits: return false if given up.
  bool wait_for(const Action& action, const Signal& need, Token& token);
  bool receive(const Action& action, const Signal& need, Token& token);
  bool meet(const Action& action, const Signal& need);  ///< all replicas, before an update
  bool admit(const Action& action);
  bool await_target(const Action& action);
  /// Waits for a late target and takes the loss. `fate`: of the sample; changed without a target.
  bool compare(const Action& action, Fate& fate);
  /// Tries until `attempt` succeeds. `at`: the program's action whose token it waits for.
  template <class Attempt>
  bool await(const Action& action, const Attempt& attempt, std::int64_t at = -1);
  /// Sends `signal` at once, to another replica.
  void pass_on(const Signal& signal, Fate fate = Fate::trained, Alarm alarm = Alarm::none);

  // Launch groups, and reactions to their end.
  void end_group();
  void complete_finished();
  void drain();
  void complete(const Completion& completion);
  void predicted(const Action& action);  ///< shows the last stage's prediction
  void compared(const Action& action);   ///< shows the last stage's loss, and judges it
  void updated(const Completion& update);
  /// How long to wait before polling launched work again.
  std::chrono::microseconds patience() { return patience_->next(launches_.patience()); }

  bool over(std::int64_t sample) const { return shared_.over(sample); }
  bool over(const Action& action) const { return shared_.over(action); }
  WorkerStage& stage(const Action& action) { return by_stage_[std::size_t(action.stage)]; }
  SampleInfo& info(std::int64_t sample) { return shared_.in_flight(sample).info; }
  int slot(std::int64_t sample) const { return shared_.pool.slot_of(sample); }
  Alarm& verdict(std::int64_t sample) { return verdicts_[std::size_t(sample) % verdicts_.size()]; }

  Shared& shared_;
  const int index_;
  const Program& program_;
  const PipelineOptions& options_;
  Gateway& gateway_;
  const std::unique_ptr<Patience> patience_;
  ActionTrack* track_;                 ///< null: no log
  std::vector<WorkerStage> by_stage_;  ///< [stage]; only this worker's are filled
  std::vector<int> stages_;            ///< this worker's
  Launches launches_;
  double rate_ = 1.0;  ///< last passed on to the stages
  bool completing_ = false;
  std::int64_t at_ = 0;  ///< index of the current action in its program
  bool admits_ = false;
  std::vector<Alarm> verdicts_;  ///< [sample % size]: the guard's, on the latest samples
};

}  // namespace millrace::engine
