// A schedule's text run against a table of costs, for devices that nobody has here. Needs no
// LibTorch, no thread and no clock: same input, same answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/plan/cost_model.h"
#include "engine/schedule/schedule.h"
#include "engine/trace/trace.h"

namespace millrace::engine {

/// What the schedule runs against. Times in milliseconds, sizes in bytes, both of one sample.
struct SimulationInput {
  std::int64_t samples = 8;              ///< admitted; a trailing group is not worked on
  std::vector<plan::StageCosts> stages;  ///< [Schedule::stages], on one device each
  double input_bytes = 0;  ///< of a sample as stage 0 takes it: what recomputing keeps
  /// Worker w is device w. One level stands for any number of devices. A message takes link.ms():
  /// with Overlap::none the sender and then the receiver are busy for it, otherwise the link is,
  /// one message at a time in each direction. Replicas agree before an update by a ring all-reduce;
  /// it takes the workers' time except with Overlap::all, where it runs beside the work before it.
  plan::Machine machine;
  double delay_ms = 0;     ///< a message is under way so long besides, with any others at once
  double overhead_ms = 0;  ///< of every action: launching it, finding out that it can begin
  double contention = 1;   ///< computing takes so many times longer, as where workers share memory
  /// Worker w is pinned to core w modulo `cores`, as a run deals them. Those of one core take turns,
  /// first come, first served, an action at a time (an operating system slices finer; the rate is
  /// the same). 0: a core for each.
  int cores = 0;
  /// 1/F of a live source: frame k comes at k / F, and of the frames that wait the newest is taken,
  /// as the frame queue does under `newest`. 0: a sample is there when it is asked for.
  double source_period_ms = 0;
  bool events = false;  ///< list every action with its times, too
};

/// An action as it happened: from start_ms it received, computed and sent.
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

/// How a worker spent its time; what is left of the total is idle.
struct WorkerUse {
  double compute_ms = 0;
  double handoff_ms = 0;
  double peak_bytes = 0;  ///< weights, gradients and optimizer of its stages, activations it keeps
};

struct Simulation {
  std::int64_t samples = 0;  ///< worked on
  std::int64_t dropped = 0;  ///< frames that a live source let go of meanwhile
  double total_ms = 0;       ///< until the last worker has done its last action
  /// From one prediction to the next, in the second half of the predictions that were made while
  /// samples still came, whole updates of them: filling and draining do not count, other than a
  /// flush's. Of a single minibatch: total_ms over its samples.
  double period_ms = 0;
  double step_p50_ms = 0;  ///< the median of the same, as the monitor counts it
  /// Whether there were enough samples for that: every stage had begun to go backward by then.
  bool settled = false;
  /// From the frame's arrival (a sample's admission, where the source is not live) to prediction.
  double latency_p50_ms = 0, latency_p99_ms = 0, latency_max_ms = 0;
  std::vector<WorkerUse> workers;
  /// By stage, on one of its devices: versions and samples kept at most, and their bytes.
  std::vector<plan::StageMemory> memory;
  std::vector<std::int64_t> gradient_age;  ///< by stage: gradient_ages()
  std::vector<SimulatedAction> events;     ///< by start; empty unless asked for

  double fps() const { return period_ms > 0 ? 1e3 / period_ms : 0; }
  double compute_share(int worker) const;
  double handoff_share(int worker) const;
  double utilisation() const;  ///< mean of compute_share()
  double bubble() const;       ///< mean share of time in which a worker has nothing to do
};

/// Runs `schedule`, which verify() must have passed or would pass, by discrete events. O(actions x
/// log(workers)) time; memory for workers, samples and messages under way. Throws
/// std::invalid_argument for input that makes no sense, std::logic_error if the schedule deadlocks.
Simulation simulate(const Schedule& schedule, const SimulationInput& input);

/// So many samples that the period settles, unless two stages are all but equally slow.
std::int64_t enough_samples(const Schedule& schedule);

/// The steady period in milliseconds a sample. `link` is what lies between a message's sending and
/// a waiting worker's waking up: it passes beside the workers' own work. `cores` as above.
double predict(const Schedule& schedule, const std::vector<plan::StageCosts>& stages,
               const plan::Link& link = {}, int cores = 0);

/// What the workers computed and when, for a trace.
std::vector<Span> spans_of(const Simulation& simulation);

}  // namespace millrace::engine
