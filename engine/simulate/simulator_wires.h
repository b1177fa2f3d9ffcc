// Who sends what to whom in a simulation: units, their workers, and the messages between them.
#pragma once

#include <cstdint>  // sample numbers
#include <deque>    // messages
#include <vector>   // units, wires

#include "engine/simulate/simulator.h"

namespace millrace::engine {

/// What the schedule's text says of its units, read once: Schedule's own look-ups walk all of it.
struct Units {
  explicit Units(const Schedule& schedule);

  int of(int stage, std::int64_t sample) const {
    return first[stage] + int(sample % replicas[stage]);
  }
  int worker_of(int stage, std::int64_t sample) const { return workers[of(stage, sample)]; }

  std::vector<int> replicas, first;           ///< by stage; first: its replica 0's number
  std::vector<int> workers;                   ///< by unit
  std::vector<std::int64_t> first_backwards;  ///< by stage
  std::vector<bool> recomputes;               ///< by stage
};

/// One past the last action of `program` on a sample before `applied`.
std::int64_t actions_until(const Program& program, std::int64_t applied);

/// Messages of one kind from one unit to another. They are taken in the order they were sent in.
struct Wire {
  int to = 0;     ///< the worker that takes them
  int link = -1;  ///< what they share with others between the same two workers; -1: one worker
  double ms = 0;  ///< of a message; 0 within a worker
  std::deque<std::int64_t> arrived;  ///< labels: the sample that a message is about
};

class Wires {
 public:
  Wires(const Units& units, const SimulationInput& input);

  /// What carries `sample` from `stage` to the stage after it.
  Wire& activation(int stage, std::int64_t sample) {
    return wires_[index(stage, sample % replicas_[stage], sample % replicas_[stage + 1], 0)];
  }
  /// What carries the gradient with the label `gradient` from the stage after it to `stage`, which
  /// meets `sample` with it.
  Wire& gradient(int stage, std::int64_t sample, std::int64_t gradient) {
    return wires_[index(stage, sample % replicas_[stage], gradient % replicas_[stage + 1], 1)];
  }
  int number(const Wire& wire) const { return int(&wire - wires_.data()); }
  Wire& at(int number) { return wires_[number]; }
  int links() const { return links_; }

 private:
  std::size_t index(int stage, std::int64_t upper, std::int64_t lower, int way) const {
    return first_[stage] + std::size_t(2 * (upper * replicas_[stage + 1] + lower) + way);
  }

  std::vector<int> replicas_;
  std::vector<std::size_t> first_;  ///< by stage: the first wire after it
  std::vector<Wire> wires_;
  int links_ = 0;
};

}  // namespace millrace::engine
