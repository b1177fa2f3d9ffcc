// What a simulation counts as it runs, and its result.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/simulate/simulator_wires.h"

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

}  // namespace millrace::engine
