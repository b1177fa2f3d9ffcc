#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// What one action produces and another may wait for.
struct Signal {
  enum class Kind : std::uint8_t {
    admission,   ///< the sample was taken from the feed; orders the replicas of the first stage
    activation,  ///< the stage's output is in the sample's slot
    prediction,  ///< the sample's prediction was shown; orders the replicas of the last stage
    gradient,    ///< the gradient of the stage's input is in the sample's slot
    meeting,     ///< each replica has reached the sample's update; given before the wait
    release,  ///< the stage no longer needs the sample; its slot is free once all stages have given
              ///< this. Always given for a sample < 0
  };

  Kind kind;
  int stage;  ///< that gives it; the first stage where all stages give it
  std::int64_t sample;
  int from, to;  ///< Schedule::replica_id() of giver and taker; equal if no other stage needs it

  bool crosses_cut() const { return kind == Kind::activation || kind == Kind::gradient; }
};

/// At most three signals, stored in place.
class Signals {
 public:
  void add(const Signal& signal) { items_[std::size_t(count_++)] = signal; }
  const Signal* begin() const { return items_.data(); }
  const Signal* end() const { return items_.data() + count_; }
  /// Null if there is none of `kind`.
  const Signal* find(Signal::Kind kind) const {
    for (const Signal& signal : *this) {
      if (signal.kind == kind) return &signal;
    }
    return nullptr;
  }

 private:
  std::array<Signal, 3> items_;
  int count_ = 0;
};

struct Lowered {
  Action action;
  int replica_id = 0;    ///< Schedule::replica_id() of the acting replica
  Signals needs, gives;  ///< in the order of waiting and giving
};

/// Derives what an action waits for and gives; for engine, verifier, launch groups and simulator.
/// Works on one action at a time, since programs are endless. Never allocates. Immutable.
class Lowering {
 public:
  /// `schedule` must outlive this, and need not be verified.
  explicit Lowering(const Schedule& schedule);

  /// `action`: on a sample >= 0, of a stage that has the worker's replica number.
  Lowered operator()(int worker, const Action& action) const;

  const Schedule& schedule() const { return schedule_; }
  int replicas(int stage) const { return replicas_[std::size_t(stage)]; }
  int replica_id(int stage, int replica) const {
    return first_replica_[std::size_t(stage)] + replica;
  }
  int replica_ids() const { return int(worker_.size()); }
  int replica_with(int stage, std::int64_t sample) const {
    return replica_id(stage, int(sample % replicas(stage)));
  }
  int worker(int replica_id) const { return worker_[std::size_t(replica_id)]; }
  int stage(int replica_id) const { return stage_[std::size_t(replica_id)]; }
  bool last(int stage) const { return stage + 1 == schedule_.stages; }
  std::int64_t first_backward(int stage) const { return first_backward_[std::size_t(stage)]; }
  bool recomputes(int stage) const { return needs_[std::size_t(stage)].recompute; }
  /// Whether `action`'s gradient comes from a loss rather than from downstream. `own_losses`: every
  /// stage has its own loss and gets no other gradient.
  bool begins_at_loss(const Action& action, bool own_losses) const {
    return action.op == Op::backward_local ||
           (takes_gradient(action.op) && (last(action.stage) || own_losses));
  }
  /// Whether the stage has its own loss in addition to the last stage's.
  bool supervised(int stage) const { return needs_[std::size_t(stage)].local; }

 private:
  const Schedule& schedule_;
  std::vector<int> replicas_, first_replica_;  ///< by stage
  std::vector<int> worker_, stage_;            ///< by replica_id
  std::vector<std::int64_t> first_backward_;   ///< by stage
  std::vector<StageNeeds> needs_;              ///< by stage
};

/// Walks the workers through their programs to the end of `samples` samples, one worker at a time,
/// each while `attempt(worker, index)` returns true for the action at `index`. `at`: each worker's
/// position. Returns whether all reached their end.
template <class Attempt>
bool walk_programs(const Schedule& schedule, std::int64_t samples, std::vector<std::int64_t>& at,
                   const Attempt& attempt) {
  std::vector<std::int64_t> end;
  for (const Program& program : schedule.workers) end.push_back(program.end(samples));
  at.assign(end.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t worker = 0; worker < end.size(); ++worker) {
      for (; at[worker] < end[worker] && attempt(int(worker), at[worker]); ++at[worker])
        moved = true;
    }
    if (at == end) return true;
  }
  return false;
}

}  // namespace millrace::engine
