// A schedule lowered: each action with what it waits for and what others may wait for once it is
// done. Worked out here alone; engine, verifier, launch groups, staircase and simulator read it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// Something that an action gives, and that others may need before they begin.
struct Signal {
  enum class Kind : std::uint8_t {
    admission,   ///< the sample was taken from the feed; orders the replicas of the first stage
    activation,  ///< what the stage made of the sample lies in its slot
    prediction,  ///< the sample's prediction was shown; orders the replicas of the last stage
    gradient,    ///< the gradient of the stage's input lies in the sample's slot
    meeting,  ///< every replica of the stage has arrived at the update that ends with the sample;
              ///< whoever needs it gives it first
    release,  ///< the stage no longer needs the sample: needed of all stages at once, for the
              ///< slot; of a sample < 0 it is always there
  };

  Kind kind;
  int stage;            ///< that gives it; first stage for what all of them give
  std::int64_t sample;  ///< that it is about
  int from, to;  ///< Schedule::replica_id() that gives and takes it; equal where nobody else does
};

/// Whether a signal only orders two moments within actions, not the actions themselves.
constexpr bool orders_moments(Signal::Kind kind) {
  return kind == Signal::Kind::admission || kind == Signal::Kind::prediction;
}

/// As many signals as an action can need or give.
class Signals {
 public:
  void add(const Signal& signal) { items_[std::size_t(count_++)] = signal; }
  const Signal* begin() const { return items_.data(); }
  const Signal* end() const { return items_.data() + count_; }
  /// Null if there is none.
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
  int replica_id = 0;    ///< Schedule::replica_id() that acts
  Signals needs, gives;  ///< in the order in which they are waited for and given
};

/// Lowers actions one by one, without allocating, since a program has no end. Immutable.
class Lowering {
 public:
  /// `schedule` outlives it, and need not be verified.
  explicit Lowering(const Schedule& schedule);

  /// `action`: of a stage that the worker's replica number exists in, on a sample >= 0.
  Lowered operator()(int worker, const Action& action) const;

  const Schedule& schedule() const { return schedule_; }
  // Schedule's own, looked up at once.
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
  /// The first sample that goes backward at `stage`, which is done with earlier ones after their
  /// forward.
  std::int64_t first_backward(int stage) const { return first_backward_[std::size_t(stage)]; }
  bool recomputes(int stage) const { return recomputes_[std::size_t(stage)]; }

 private:
  const Schedule& schedule_;
  std::vector<int> replicas_, first_replica_;  ///< by stage
  std::vector<int> worker_, stage_;            ///< by replica_id
  std::vector<std::int64_t> first_backward_;   ///< by stage
  std::vector<bool> recomputes_;               ///< by stage
};

/// Has the workers go through their programs to the end of `samples` samples, one worker at a time,
/// each as long as `attempt(worker, index)` says that it did the action at `index`. `at`: by
/// worker, where it stands. Returns whether all got to their end.
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
