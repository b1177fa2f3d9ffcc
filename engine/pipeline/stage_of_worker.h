// What a worker knows of one of its stages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "capture/step.h"
#include "engine/monitor/monitor.h"
#include "engine/pipeline/loss_guard.h"
#include "engine/trace/action_log.h"

namespace millrace::engine {

/// Thread-bound.
struct StageOfWorker {
  capture::Step* step = nullptr;
  StageMeter* meter = nullptr;
  std::int64_t age = 0;       ///< of gradients in the steady state, in samples
  std::int64_t newest = 0;    ///< the sample last forwarded
  std::int64_t versions = 0;  ///< of its weights, made so far
  std::int64_t tries = 0;     ///< updates asked of its step
  std::int64_t skipped = 0;   ///< of them, known to be left out
  // The gradient last received: the sample whose loss made it, the guard's verdict, whether there
  // is one.
  std::int64_t origin = 0;
  Alarm alarm = Alarm::none;
  bool learns = true;
  std::vector<char> learned_in{};  ///< by slot: what `learns` was of a sample's own gradient
  // Since the last update: the worst alarm, and whether there was a gradient, a sample without
  // one, a sample without a target (last stage), a forward.
  Alarm pending = Alarm::none;
  bool learned = false, left_out = false, untold = false, forwarded = false;
  // If the step defers: time on the host and forwards of this launch group, time on the device of
  // groups without a forward.
  std::int64_t host_ns = 0;
  int forwards = 0;
  std::int64_t unrecorded_ns = 0;

  /// Counts the time since the last call as `part`. `track` may be null.
  void lap(StageMeter::Part part, ActionTrack* track, Clock::time_point now) {
    if (part == StageMeter::Part::waiting && track) track->waited(meter->last(), now);
    if (!step->defers()) return meter->lap(part, now);
    const std::int64_t passed = meter->pass(now);
    if (part != StageMeter::Part::waiting) host_ns += passed;
  }

  /// Records a launch group that is over and had `group_forwards` samples.
  void record(std::int64_t group_host_ns, int group_forwards) {
    const std::int64_t device = step->duration_ns() + std::exchange(unrecorded_ns, 0);
    if (group_forwards == 0) {
      unrecorded_ns = device;
      return;
    }
    // The host prepares one group while the device runs another: only its excess counts.
    const std::int64_t host = std::max<std::int64_t>(0, group_host_ns - device);
    for (int i = 0; i < group_forwards; ++i)
      meter->record(device / group_forwards, host / group_forwards);
  }

  /// Applies the gradients, rolls back if the guard said so, or, unless `learns_now`, skips the
  /// update. Returns whether the step was asked to update.
  bool apply(bool learns_now, bool guarded) {
    const Alarm worst = std::exchange(pending, Alarm::none);
    if (worst == Alarm::roll_back) {
      step->roll_back();
    } else if (worst == Alarm::discard || !learns_now) {
      step->skip_update();  // the version still advances
    } else {
      if (guarded && tries++ % LossGuard::kSnapshotEvery == 0) step->take_snapshot();
      step->update();
      return true;
    }
    return false;
  }

  /// Counts an update that is over; the step may have skipped one that it was `asked` for.
  void count(bool asked, bool had_gradient, std::int64_t gradient_age) {
    if (asked && step->skipped() == skipped) {
      meter->updated(gradient_age);
    } else if (had_gradient) {
      skipped += asked ? 1 : 0;
      meter->skipped();
    }
  }
};

}  // namespace millrace::engine
