#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/monitor/median.h"
#include "engine/schedule/lowering.h"
#include "engine/simulate/simulator.h"

namespace millrace::engine {

/// Throws std::invalid_argument, one line, for the first invalid value.
void check_input(const Schedule& schedule, const SimulationInput& input);

std::int64_t last_of_prologues(const Schedule& schedule);

/// Accumulates the times and memory of one run, and looks up its costs.
class SimulationFacts {
 public:
  SimulationFacts(const Schedule& schedule, const SimulationInput& input, const Lowering& lowering)
      : schedule_(schedule),
        input_(input),
        lowering_(lowering),
        by_replica_(lowering.replica_ids()),
        by_worker_(schedule.workers.size()) {
    made_.workers.resize(schedule.workers.size());
    for (int stage = 0; stage < schedule.stages; ++stage) {
      const int first = lowering.replica_id(stage, 0), members = lowering.replicas(stage);
      plan::Link slowest;
      double most = -1;
      const double bytes = input.stages[stage].bytes.weight / members;
      for (int i = 0; i + 1 < members; ++i) {  // the ring's ends are its farthest members
        const plan::Link& link = input.machine.link_between(lowering.worker(first + i),
                                                            lowering.worker(first + members - 1));
        if (link.ms(bytes) > most) slowest = link;
        most = std::max(most, link.ms(bytes));
      }
      agree_ms_.push_back(plan::all_reduce_ms(slowest, input.stages[stage].bytes.weight, members));
    }
  }

  double compute_ms(const Action& action) const {
    if (input_.ticks) return action.op == Op::update ? 0 : 1;
    const plan::StepCosts& ms = input_.stages[action.stage].ms;
    const double by_op[] = {ms.forward,        ms.weight_gradient, ms.forward, ms.backward(),
                            ms.input_gradient, ms.weight_gradient, ms.update};
    return by_op[int(action.op)] * input_.contention + input_.overhead_ms;
  }
  double agree_ms(int stage) const { return agree_ms_[stage]; }

  /// Records that the next sample is admitted; its frame arrived at `came_ms`.
  void admitted(double ms, double came_ms) {
    last_admission_ = ms;
    came_.push_back(came_ms);
  }
  void begins(const SimulatedAction& now) {
    made_.workers[now.worker].compute_ms += now.compute_ms;
    made_.workers[now.worker].handoff_ms += now.receive_ms + now.send_ms;
    if (input_.events) made_.events.push_back(now);
    // With recompute, a stage holds only a sample's input until it recomputes the activations.
    const Action& a = now.action;
    const double stash = input_.stages[a.stage].bytes.stash;
    const int replica_id = lowering_.replica_with(a.stage, a.sample);
    if (a.op == Op::forward)
      keep(now.worker, replica_id, 1, lowering_.recomputes(a.stage) ? input_bytes(a.stage) : stash);
    if (a.op == Op::recompute) keep(now.worker, replica_id, 0, stash);
  }
  void predicted(double ms) { predicted_.push_back(ms); }  ///< records the next sample's prediction
  /// Frees what the stage held for the sample.
  void released(int worker, const Lowered& done) {
    const Action& a = done.action;
    const double stash = input_.stages[a.stage].bytes.stash;
    double bytes = stash;
    if (lowering_.recomputes(a.stage))
      bytes = input_bytes(a.stage) + (a.op == Op::forward ? 0.0 : stash);
    keep(worker, done.replica_id, -1, -bytes);
  }

  Simulation simulation(double total_ms, std::int64_t dropped) {
    made_.samples = std::int64_t(predicted_.size());
    made_.frames = input_.frames;
    made_.dropped = dropped;
    made_.total_ms = total_ms;
    set_period();
    set_latency();
    set_memory();
    made_.gradient_age = gradient_ages(schedule_);
    return std::move(made_);
  }

 private:
  struct Kept {
    std::int64_t samples = 0, most_samples = 0;
    double bytes = 0, most_bytes = 0;
    void add(std::int64_t count, double size) {
      samples += count;
      bytes += size;
      most_samples = std::max(most_samples, samples);
      most_bytes = std::max(most_bytes, bytes);
    }
  };
  void keep(int worker, int replica_id, std::int64_t samples, double bytes) {
    by_replica_[replica_id].add(samples, bytes);
    by_worker_[worker].add(samples, bytes);
  }
  void set_period() {
    std::vector<double> steps;
    for (std::size_t m = 1; m < predicted_.size(); ++m)
      steps.push_back(predicted_[m] - predicted_[m - 1]);
    made_.step_p50_ms = quantile(steps, 0.5);
    // After the last admission the pipeline drains, faster. A flush drains each time.
    const std::int64_t count = made_.samples, together = schedule_.samples_a_choice();
    const auto before = std::upper_bound(predicted_.begin(), predicted_.end(), last_admission_);
    const std::int64_t undrained = (before - predicted_.begin()) / together * together;
    const std::int64_t end = undrained >= 2 * together ? undrained : count / together * together;
    const std::int64_t half = end / 2 / together * together;
    if (half == 0) {
      made_.period_ms = made_.total_ms / double(count);
      return;
    }
    made_.period_ms = (predicted_[end - 1] - predicted_[end - 1 - half]) / double(half);
    made_.settled =
        end - 1 - half > last_of_prologues(schedule_) && (end == undrained || schedule_.flushes());
  }
  void set_latency() {
    std::vector<double> latencies;
    for (std::size_t m = 0; m < predicted_.size(); ++m)
      latencies.push_back(predicted_[m] - came_[m]);
    made_.latency_p50_ms = quantile(latencies, 0.5);
    made_.latency_p99_ms = quantile(latencies, 0.99);
    made_.latency_max_ms = *std::max_element(latencies.begin(), latencies.end());
  }
  void set_memory() {
    for (std::size_t worker = 0; worker < by_worker_.size(); ++worker)
      made_.workers[worker].peak_bytes = by_worker_[worker].most_bytes;
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      const plan::StepBytes& bytes = input_.stages[stage].bytes;
      plan::StageMemory memory{.versions = schedule_.versions_of(stage), .samples = 0};
      memory.weights = memory.versions * bytes.weight;
      memory.optimizer = bytes.weight + bytes.state;
      for (int replica = 0; replica < lowering_.replicas(stage); ++replica) {
        const int replica_id = lowering_.replica_id(stage, replica);
        memory.samples = std::max(memory.samples, int(by_replica_[replica_id].most_samples));
        memory.stash = std::max(memory.stash, by_replica_[replica_id].most_bytes);
        made_.workers[lowering_.worker(replica_id)].peak_bytes += memory.weights + memory.optimizer;
      }
      made_.memory.push_back(memory);
    }
  }
  double input_bytes(int stage) const {
    return stage > 0 ? input_.stages[stage - 1].bytes.activation : input_.input_bytes;
  }

  const Schedule& schedule_;
  const SimulationInput& input_;
  const Lowering& lowering_;
  std::vector<double> agree_ms_;
  double last_admission_ = 0;
  std::vector<double> came_, predicted_;  ///< [sample]
  std::vector<Kept> by_replica_, by_worker_;
  Simulation made_;
};

}  // namespace millrace::engine
