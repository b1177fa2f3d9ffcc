// Runs a schedule against a table of costs, for devices that are not here. Uses neither threads nor
// clocks: the same input gives the same result.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/cost_model.h"
#include "engine/schedule/schedule.h"
#include "engine/trace/trace.h"

namespace millrace::engine {

/// Costs in milliseconds: one value for all stages, or one per stage.
struct GivenCosts {
  std::vector<double> forward = {1}, update = {0};
  std::vector<double> backward = {2};  ///< half each for input and weights
  plan::StepBytes bytes;               ///< of every stage

  /// Throws std::invalid_argument, naming `prefix` and the list, for any other number of values.
  std::vector<plan::StageCosts> of(int stages, const std::string& prefix = "") const;
};

/// Times in milliseconds, sizes in bytes, both of one sample.
struct SimulationInput {
  std::int64_t samples = 8;              ///< admitted; an incomplete trailing group is skipped
  std::vector<plan::StageCosts> stages;  ///< [Schedule::stages], each on one device
  double input_bytes = 0;                ///< of a sample at stage 0; held for recomputing
  int frames = 1;                        ///< in a sample, if costs are those of a minibatch
  /// Worker w is device w. One level stands for any number of devices. A message takes link.ms():
  /// of the sender and then of the receiver with Overlap::none; otherwise of the link, one message
  /// at a time per direction. The replicas' ring all-reduce before an update takes the workers'
  /// time except with Overlap::all, where it overlaps with the preceding work.
  plan::Machine machine;
  double delay_ms = 0;     ///< extra time in transit, in parallel for all messages
  double overhead_ms = 0;  ///< per action: launching it, noticing that it can begin
  double contention = 1;   ///< factor on computing, for workers that share memory bandwidth
  /// Worker w is pinned to core w % cores, as in a run. Workers on a core take turns, first come,
  /// first served, one action at a time (real slices are finer, at the same rate). 0: a core each.
  int cores = 0;
  /// 1/F of a live source: frame k arrives at k / F, and the newest waiting one is taken, as in the
  /// frame queue's `newest`. 0: a sample is always ready.
  double source_period_ms = 0;
  bool ticks = false;   ///< every action takes 1 ms, an update none; `stages` is ignored
  bool events = false;  ///< list every action with its times
};

/// Receives, computes and sends in this order, from start_ms on.
struct SimulatedAction {
  int worker = 0;
  Action action;
  double start_ms = 0;
  double receive_ms = 0;
  double compute_ms = 0;
  double send_ms = 0;

  double compute_start_ms() const { return start_ms + receive_ms; }
  double end_ms() const { return start_ms + receive_ms + compute_ms + send_ms; }
};

/// Idle for the rest of the total.
struct WorkerUse {
  double compute_ms = 0;
  double handoff_ms = 0;
  double peak_bytes = 0;  ///< weights, gradients and optimizer of its stages, activations
};

struct Simulation {
  std::int64_t samples = 0;
  std::int64_t dropped = 0;  ///< frames that a live source dropped
  int frames = 1;            ///< in a sample
  double total_ms = 0;       ///< until the last action and the last message end
  /// Mean time between predictions, over the second half of those while samples were admitted, in
  /// whole updates: no filling, no draining but a flush's. Of one minibatch: total_ms / samples.
  double period_ms = 0;
  double step_p50_ms = 0;  ///< median time between all predictions, as in the monitor
  /// Whether there were enough samples: every stage had begun to go backward.
  bool settled = false;
  /// From the frame's arrival, or from admission if the source is not live, to prediction.
  double latency_p50_ms = 0, latency_p99_ms = 0, latency_max_ms = 0;
  std::vector<WorkerUse> workers;
  /// For each stage, on one of its devices: the most versions and samples held, and their bytes.
  std::vector<plan::StageMemory> memory;
  std::vector<std::int64_t> gradient_age;  ///< [stage]: gradient_ages()
  std::vector<SimulatedAction> events;     ///< in order of start; empty unless requested

  double fps() const { return period_ms > 0 ? 1e3 * frames / period_ms : 0; }
  double compute_share(int worker) const {
    return total_ms > 0 ? workers[worker].compute_ms / total_ms : 0;
  }
  double handoff_share(int worker) const {
    return total_ms > 0 ? workers[worker].handoff_ms / total_ms : 0;
  }
  double utilisation() const;  ///< mean of compute_share()
  double bubble() const;
};

/// `schedule`: one that passes verify(). O(actions x log(workers)) time if workers share no cores;
/// memory for workers, samples and messages in flight. Throws std::invalid_argument for invalid
/// input, std::logic_error if the schedule deadlocks.
Simulation simulate(const Schedule& schedule, const SimulationInput& input);

/// Samples after which the period has settled, unless two stages are almost equally slow.
std::int64_t enough_samples(const Schedule& schedule);

/// The steady period in milliseconds per sample. `link`: time from sending a message until a
/// waiting worker wakes up, in parallel to the workers' own work. `cores`: see SimulationInput.
double predict(const Schedule& schedule, const std::vector<plan::StageCosts>& stages,
               const plan::Link& link = {}, int cores = 0);

/// The workers' computing, for a trace.
std::vector<Span> spans_of(const Simulation& simulation);

}  // namespace millrace::engine
