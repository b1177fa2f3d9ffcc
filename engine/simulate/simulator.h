// Runs a schedule against a table of costs, for devices that are not here. Uses no thread and no
// clock: the same input gives the same result.
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
  std::int64_t samples = 8;              ///< admitted; a trailing group is skipped
  std::vector<plan::StageCosts> stages;  ///< [Schedule::stages], on one device each
  double input_bytes = 0;                ///< of a sample at stage 0: what recomputing keeps
  int frames = 1;                        ///< in a sample, if costs are those of a minibatch
  /// Worker w is device w. One level stands for any number of devices. A message takes link.ms():
  /// of the sender and then of the receiver with Overlap::none; else of the link, one message at a
  /// time per direction. The replicas' ring all-reduce before an update takes the workers' time
  /// except with Overlap::all, where it overlaps with the work before it.
  plan::Machine machine;
  double delay_ms = 0;     ///< extra time in transit, in parallel for all messages
  double overhead_ms = 0;  ///< of every action: launching it, noticing that it can begin
  double contention = 1;   ///< factor on computing, as if workers share memory bandwidth
  /// Worker w is pinned to core w % cores, as in a run. Workers on a core take turns, first come,
  /// first served, one action at a time (real slices are finer, at the same rate). 0: a core each.
  int cores = 0;
  /// 1/F of a live source: frame k comes at k / F, and the newest waiting one is taken, like the
  /// frame queue's `newest`. 0: a sample is always ready.
  double source_period_ms = 0;
  bool ticks = false;   ///< every action takes 1 ms, an update none, whatever `stages` say
  bool events = false;  ///< list every action with its times
};

/// From start_ms it received, computed and sent.
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

/// The rest of the total is idle.
struct WorkerUse {
  double compute_ms = 0;
  double handoff_ms = 0;
  double peak_bytes = 0;  ///< weights, gradients and optimizer of its stages, activations it keeps
};

struct Simulation {
  std::int64_t samples = 0;  ///< worked on
  std::int64_t dropped = 0;  ///< frames that a live source dropped
  int frames = 1;            ///< in a sample
  double total_ms = 0;       ///< until the last action and the last message end
  /// Mean time between predictions, over the second half of those while samples were still
  /// admitted, in whole updates: no filling and draining but a flush's. Of one minibatch: total_ms
  /// / samples.
  double period_ms = 0;
  double step_p50_ms = 0;  ///< median time between all predictions, as the monitor's
  /// Whether there were enough samples: every stage had begun to go backward.
  bool settled = false;
  /// To prediction from the frame's arrival, or from admission if the source is not live.
  double latency_p50_ms = 0, latency_p99_ms = 0, latency_max_ms = 0;
  std::vector<WorkerUse> workers;
  /// For each stage, on one of its devices: the most versions and samples held, and their bytes.
  std::vector<plan::StageMemory> memory;
  std::vector<std::int64_t> gradient_age;  ///< by stage: gradient_ages()
  std::vector<SimulatedAction> events;     ///< by start; empty unless asked for

  double fps() const { return period_ms > 0 ? 1e3 * frames / period_ms : 0; }
  double compute_share(int worker) const {
    return total_ms > 0 ? workers[worker].compute_ms / total_ms : 0;
  }
  double handoff_share(int worker) const {
    return total_ms > 0 ? workers[worker].handoff_ms / total_ms : 0;
  }
  double utilisation() const;  ///< mean of compute_share()
  double bubble() const;       ///< mean share of time in which a worker is idle
};

/// `schedule`: one that verify() passes. O(actions x log(workers)) time if workers share no cores;
/// memory for workers, samples and messages in flight. Throws std::invalid_argument for invalid
/// input, std::logic_error if the schedule deadlocks.
Simulation simulate(const Schedule& schedule, const SimulationInput& input);

/// For the period to settle, unless two stages are almost equally slow.
std::int64_t enough_samples(const Schedule& schedule);

/// The steady period in milliseconds per sample. `link`: time from sending a message until a
/// waiting worker wakes up, in parallel to the workers' own work. `cores` as above.
double predict(const Schedule& schedule, const std::vector<plan::StageCosts>& stages,
               const plan::Link& link = {}, int cores = 0);

/// The workers' computing, for a trace.
std::vector<Span> spans_of(const Simulation& simulation);

}  // namespace millrace::engine
