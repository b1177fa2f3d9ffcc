// What a simulation counts as it runs, and its result.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "engine/schedule/lowering.h"
#include "engine/simulate/simulator.h"

namespace millrace::engine {

/// Throws std::invalid_argument, one line, for the first invalid value.
void check_input(const Schedule& schedule, const SimulationInput& input);

/// Counts times and memory of one run, and knows the costs.
class SimulationFacts {
 public:
  SimulationFacts(const Schedule& schedule, const SimulationInput& input, const Lowering& lowering);

  double compute_ms(const Action& action) const;
  /// What the all-reduce of an update takes the replicas of `stage`.
  double agree_ms(int stage) const { return agree_ms_[stage]; }

  /// The next sample is admitted, whose frame came at `came_ms`.
  void admitted(double ms, double came_ms) {
    last_admission_ = ms;
    came_.push_back(came_ms);
  }
  void begins(const SimulatedAction& action);
  void predicted(double ms) { predicted_.push_back(ms); }  ///< the next sample
  /// Whether the sample has left the stage with it.
  bool ends(int worker, const Lowered& action);

  Simulation simulation(double total_ms, std::int64_t dropped);

 private:
  /// Activations that are kept.
  struct Kept {
    std::int64_t samples = 0, most_samples = 0;
    double bytes = 0, most_bytes = 0;
    void add(std::int64_t count, double size);
  };
  void keep(int worker, int replica_id, std::int64_t samples, double bytes);
  void set_period(Simulation& simulation) const;
  void set_latency(Simulation& simulation) const;
  void set_memory(Simulation& simulation) const;
  double input_bytes(int stage) const {
    return stage > 0 ? input_.stages[stage - 1].bytes.activation : input_.input_bytes;
  }

  const Schedule& schedule_;
  const SimulationInput& input_;
  const Lowering& lowering_;
  std::vector<double> agree_ms_;
  double last_admission_ = 0;
  std::vector<double> came_, predicted_;  ///< by sample
  std::vector<WorkerUse> workers_;
  std::vector<Kept> by_replica_, by_worker_;
  std::vector<SimulatedAction> events_;
};

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
