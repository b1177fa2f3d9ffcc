#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "capture/step.h"
#include "engine/monitor/monitor.h"
#include "engine/pipeline/channels.h"
#include "engine/pipeline/loss_guard.h"
#include "engine/trace/action_log.h"

namespace millrace::engine {

/// A worker's state for one of its stages. Thread-bound.
struct StageOfWorker {
  capture::Step* step = nullptr;
  StageMeter* meter = nullptr;
  std::int64_t age = 0;       ///< of gradients in the steady state, in samples
  std::int64_t newest = 0;    ///< the sample last forwarded
  std::int64_t versions = 0;  ///< updates of its weights so far
  std::int64_t tries = 0;     ///< updates asked of its step
  std::int64_t skipped = 0;   ///< of them, known to be skipped
  // Of the gradient last received: the sample of its loss, the guard's verdict, whether it exists.
  std::int64_t origin = 0;
  Alarm alarm = Alarm::none;
  bool learns = true;
  std::vector<char> learned_in{};  ///< by slot: `learns` of the sample's own gradient
  // Since the last update: the worst alarm, and whether there was a gradient, a sample without one,
  // a sample without a target (last stage), a forward.
  Alarm pending = Alarm::none;
  bool learned = false, left_out = false, without_target = false, forwarded = false;
  // If the step defers: host time and forwards of this group; device time of groups without any.
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

  /// Records a finished launch group with `group_forwards` samples.
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

  /// Counts a finished update; the step may have skipped one that it was `asked` for.
  void count(bool asked, bool had_gradient, std::int64_t gradient_age) {
    if (asked && step->skipped() == skipped) {
      meter->updated(gradient_age);
    } else if (had_gradient) {
      skipped += asked ? 1 : 0;
      meter->skipped();
    }
  }
};

/// Holds tokens until the launch group ends.
class Outbox {
 public:
  explicit Outbox(std::size_t room) { tokens_.reserve(room); }
  void put(Link& to, const Token& token) { tokens_.emplace_back(&to, token); }
  template <class GiveUp>
  void send(const GiveUp& give_up) {
    for (const auto& [link, token] : tokens_)
      link->send(token, [&, sample = token.sample] { return give_up(sample); });
    tokens_.clear();
  }

 private:
  std::vector<std::pair<Link*, Token>> tokens_;
};

/// What others may know of a stage once the launch that it belongs to has finished.
struct Completion {
  enum class Kind {
    timed,      ///< the launch group's time is known
    predicted,  ///< the prediction is ready, and the loss unless targets come late
    compared,   ///< so is the loss
    released,   ///< the stage is done with the sample
    updated,    ///< so are the weights, unless the step skipped the update
    left_out,   ///< an update that the guard or a lack of gradients prevented
  };
  Kind kind = Kind::timed;
  Action action;
  std::int64_t launch = -1;  ///< -1: not launched yet
  std::chrono::steady_clock::time_point launched;
  std::int64_t number =
      0;  ///< timed: ns on the host; updated: the gradient's staleness, as StageMeter has it
  int forwards = 0;             ///< timed: samples in the group
  bool learned = false;         ///< updated, left_out: there was a gradient
  bool without_target = false;  ///< left_out: for lack of a target
};

/// Completions in order of push(): a ring that grows if it must, which is rare.
class CompletionQueue {
 public:
  explicit CompletionQueue(std::size_t room) : ring_(room) {}
  bool empty() const { return noted_ == taken_; }
  void push(const Completion& completion) {
    if (noted_ - taken_ == ring_.size()) grow();
    ring_[noted_++ % ring_.size()] = completion;
  }
  Completion& front() { return ring_[taken_ % ring_.size()]; }
  void pop() { ++taken_; }
  /// Calls `visit` for those not launched yet.
  template <class Visit>
  void launched(const Visit& visit) {
    for (; launched_ < noted_; ++launched_) visit(ring_[launched_ % ring_.size()]);
  }

 private:
  void grow() {
    std::vector<Completion> larger(2 * ring_.size());
    for (std::size_t i = taken_; i < noted_; ++i)
      larger[i % larger.size()] = ring_[i % ring_.size()];
    ring_ = std::move(larger);
  }
  std::vector<Completion> ring_;
  std::size_t noted_ = 0, launched_ = 0, taken_ = 0;
};

}  // namespace millrace::engine
