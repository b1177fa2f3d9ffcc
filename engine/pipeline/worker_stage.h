#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "capture/step.h"
#include "engine/monitor/monitor.h"
#include "engine/pipeline/channels.h"
#include "engine/pipeline/loss_guard.h"
#include "engine/trace/action_log.h"

namespace millrace::engine {

/// Times a stage's steps. A step that computes at once is timed by laps; one that defers, by the
/// launch groups that its device has finished. Thread-bound.
class StepTimer {
 public:
  StepTimer() = default;
  /// `track` may be null. All must outlive this.
  StepTimer(capture::Step& step, StageMeter& meter, ActionTrack* track)
      : step_(&step), meter_(&meter), track_(track) {}

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
  /// Records a group that the device has finished.
  void record(const Group& group) {
    const std::int64_t device = step_->duration_ns() + std::exchange(unrecorded_ns_, 0);
    if (group.forwards == 0) {
      unrecorded_ns_ = device;
      return;
    }
    // The host prepares one group while the device runs another: only its excess counts.
    const std::int64_t host = std::max<std::int64_t>(0, group.host_ns - device);
    for (int i = 0; i < group.forwards; ++i)
      meter_->record(device / group.forwards, host / group.forwards);
  }

 private:
  capture::Step* step_ = nullptr;
  StageMeter* meter_ = nullptr;
  ActionTrack* track_ = nullptr;
  std::int64_t host_ns_ = 0;        ///< of the current group
  int forwards_ = 0;                ///< in the current group
  std::int64_t unrecorded_ns_ = 0;  ///< device time of groups without forwards
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

}  // namespace millrace::engine
