// The messages between the replicas of a simulation.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "engine/schedule/lowering.h"
#include "engine/simulate/simulator.h"

namespace millrace::engine {

/// Messages of one kind from one replica to another. They are taken in the order they were sent in.
struct Wire {
  int to = 0;     ///< the worker that takes them
  int link = -1;  ///< what they share with others between the same two workers; -1: one worker
  double ms = 0;  ///< of a message; 0 within a worker
  std::deque<std::int64_t> arrived;  ///< labels: the sample that a message is about
};

class Wires {
 public:
  Wires(const Lowering& lowering, const SimulationInput& input);

  /// What carries an activation or a gradient.
  Wire& of(const Signal& signal) { return wires_[wires_by_end_.at({signal.from, signal.to})]; }
  int number(const Wire& wire) const { return int(&wire - wires_.data()); }
  Wire& at(int number) { return wires_[number]; }
  int links() const { return links_; }

 private:
  std::vector<Wire> wires_;
  std::map<std::pair<int, int>, std::size_t> wires_by_end_;  ///< giving and taking replica
  int links_ = 0;
};

}  // namespace millrace::engine
