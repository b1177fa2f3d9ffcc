// The messages between the replicas of a simulation.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "engine/schedule/lowering.h"
#include "engine/simulate/simulator.h"

namespace millrace::engine {

/// Messages of one kind from one replica to another, received in the order they were sent.
struct Wire {
  int to = 0;  ///< the receiving worker
  /// When the link from worker to worker, which other wires share, is free; null: one worker.
  double* link_free = nullptr;
  double ms = 0;                     ///< of a message; 0 within a worker
  std::deque<std::int64_t> arrived;  ///< the samples that the messages are about
};

class Wires {
 public:
  Wires(const Lowering& lowering, const SimulationInput& input) {
    for (int stage = 0; stage + 1 < lowering.schedule().stages; ++stage) {
      const plan::StepBytes& bytes = input.stages[stage].bytes;
      for (int above = 0; above < lowering.replicas(stage); ++above) {
        for (int below = 0; below < lowering.replicas(stage + 1); ++below) {
          const int upper = lowering.replica_id(stage, above);
          const int lower = lowering.replica_id(stage + 1, below);
          add(lowering, input.machine, upper, lower, bytes.activation);
          add(lowering, input.machine, lower, upper, bytes.gradient);
        }
      }
    }
  }

  /// The wire of an activation or a gradient.
  Wire& of(const Signal& signal) { return wires_.at({signal.from, signal.to}); }

 private:
  void add(const Lowering& lowering, const plan::Machine& machine, int giver, int taker,
           double bytes) {
    const int from = lowering.worker(giver), to = lowering.worker(taker);
    Wire& wire = wires_[{giver, taker}];
    wire.to = to;
    if (from == to) return;
    wire.link_free = &link_free_[{from, to}];
    wire.ms = machine.link_between(from, to).ms(bytes);
  }

  std::map<std::pair<int, int>, Wire> wires_;        ///< by giving and taking replica
  std::map<std::pair<int, int>, double> link_free_;  ///< by sending and receiving worker
};

}  // namespace millrace::engine
