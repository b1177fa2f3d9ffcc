#include "engine/simulate/simulation.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace millrace::engine {
namespace {

void require(bool fine, const std::string& what) {
  if (!fine) throw std::invalid_argument(what);
}

bool fine_number(double value) {
  return std::isfinite(value) && value >= 0;
}

/// The last sample that fills the pipeline.
std::int64_t last_of_prologues(const Schedule& schedule) {
  std::int64_t last = -1;
  for (const Program& program : schedule.workers) {
    for (const Action& action : program.prologue) last = std::max(last, action.sample);
  }
  return last;
}

/// The quantile `q` of `values`, with the monitor's rank; 0 of none.
double quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const auto at = values.begin() + std::ptrdiff_t(q * double(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

void check_input(const Schedule& schedule, const SimulationInput& input) {
  require(int(input.stages.size()) == schedule.stages,
          "costs are for " + std::to_string(input.stages.size()) + " stages, the schedule has " +
              std::to_string(schedule.stages));
  for (std::size_t i = 0; i < input.stages.size(); ++i) {
    const auto& [ms, bytes] = input.stages[i];
    for (const double cost :
         {ms.forward, ms.input_gradient, ms.weight_gradient, ms.update, bytes.activation,
          bytes.gradient, bytes.weight, bytes.state, bytes.stash}) {
      require(fine_number(cost), "a cost of stage " + std::to_string(i) + " is no number >= 0");
    }
  }
  for (const plan::Level& level : input.machine.levels) {
    require(fine_number(level.link.latency_ms) && fine_number(level.link.bytes_per_ms),
            "a link's latency or bandwidth is no number >= 0");
  }
  require(!input.machine.levels.empty(), "the machine has no devices");
  require(
      input.machine.levels.size() == 1 || input.machine.devices() >= int(schedule.workers.size()),
      "the machine has " + std::to_string(input.machine.devices()) + " devices, the schedule " +
          std::to_string(schedule.workers.size()) + " workers");
  require(fine_number(input.input_bytes), "the input's bytes are no number >= 0");
  require(fine_number(input.delay_ms), "the delay of a message is no number >= 0");
  require(fine_number(input.overhead_ms), "the overhead of an action is no number >= 0");
  require(std::isfinite(input.contention) && input.contention > 0, "contention must be above 0");
  require(fine_number(input.source_period_ms), "the source's period is no number >= 0");
  require(input.cores >= 0, "cores must be 0 (one a worker) or more");
  require(input.samples >= 1, "a simulation needs at least 1 sample");
  require(schedule.applied(input.samples) > 0, std::to_string(input.samples) +
                                                   " samples do not fill a minibatch of " +
                                                   std::to_string(schedule.group));
}

SimulationFacts::SimulationFacts(const Schedule& schedule, const SimulationInput& input,
                                 const Lowering& lowering)
    : schedule_(schedule),
      input_(input),
      lowering_(lowering),
      workers_(schedule.workers.size()),
      by_replica_(lowering.replica_ids()),
      by_worker_(schedule.workers.size()) {
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

double SimulationFacts::compute_ms(const Action& action) const {
  if (input_.ticks) return action.op == Op::update ? 0 : 1;
  const plan::StepCosts& ms = input_.stages[action.stage].ms;
  const auto cost = [&] {
    switch (action.op) {
      case Op::forward:
      case Op::recompute:
        return ms.forward;
      case Op::backward:
        return ms.backward();
      case Op::backward_input:
        return ms.input_gradient;
      case Op::backward_weight:
        return ms.weight_gradient;
      case Op::update:
        return ms.update;
    }
    return 0.0;
  };
  return cost() * input_.contention + input_.overhead_ms;
}

void SimulationFacts::begins(const SimulatedAction& now) {
  workers_[now.worker].compute_ms += now.compute_ms;
  workers_[now.worker].handoff_ms += now.receive_ms + now.send_ms;
  if (input_.events) events_.push_back(now);
  // Recomputing keeps a sample's input alone until its activations are made again.
  const Action& a = now.action;
  const double stash = input_.stages[a.stage].bytes.stash;
  const int replica_id = lowering_.replica_with(a.stage, a.sample);
  if (a.op == Op::forward)
    keep(now.worker, replica_id, 1, lowering_.recomputes(a.stage) ? input_bytes(a.stage) : stash);
  if (a.op == Op::recompute) keep(now.worker, replica_id, 0, stash);
}

bool SimulationFacts::ends(int worker, const Lowered& done) {
  if (!done.gives.find(Signal::Kind::release)) return false;
  const Action& a = done.action;
  const double stash = input_.stages[a.stage].bytes.stash;
  double bytes = stash;
  if (lowering_.recomputes(a.stage))
    bytes = input_bytes(a.stage) + (a.op == Op::forward ? 0.0 : stash);
  keep(worker, done.replica_id, -1, -bytes);
  return true;
}

void SimulationFacts::Kept::add(std::int64_t count, double size) {
  samples += count;
  bytes += size;
  most_samples = std::max(most_samples, samples);
  most_bytes = std::max(most_bytes, bytes);
}

void SimulationFacts::keep(int worker, int replica_id, std::int64_t samples, double bytes) {
  by_replica_[replica_id].add(samples, bytes);
  by_worker_[worker].add(samples, bytes);
}

Simulation SimulationFacts::simulation(double total_ms, std::int64_t dropped) {
  Simulation result;
  result.samples = std::int64_t(predicted_.size());
  result.dropped = dropped;
  result.total_ms = total_ms;
  result.workers = workers_;
  set_period(result);
  set_latency(result);
  set_memory(result);
  result.gradient_age = gradient_ages(schedule_);
  result.events = std::move(events_);
  return result;
}

void SimulationFacts::set_period(Simulation& result) const {
  std::vector<double> steps;
  for (std::size_t m = 1; m < predicted_.size(); ++m)
    steps.push_back(predicted_[m] - predicted_[m - 1]);
  result.step_p50_ms = quantile(steps, 0.5);
  // After the last admission the pipeline drains, faster. A flush drains each time.
  const std::int64_t count = result.samples, together = schedule_.samples_a_choice();
  const auto before = std::upper_bound(predicted_.begin(), predicted_.end(), last_admission_);
  const std::int64_t undrained = (before - predicted_.begin()) / together * together;
  const std::int64_t end = undrained >= 2 * together ? undrained : count / together * together;
  const std::int64_t half = end / 2 / together * together;
  if (half == 0) {
    result.period_ms = result.total_ms / double(count);
    return;
  }
  result.period_ms = (predicted_[end - 1] - predicted_[end - 1 - half]) / double(half);
  result.settled =
      end - 1 - half > last_of_prologues(schedule_) && (end == undrained || schedule_.flushes());
}

void SimulationFacts::set_latency(Simulation& result) const {
  std::vector<double> latencies;
  for (std::size_t m = 0; m < predicted_.size(); ++m) latencies.push_back(predicted_[m] - came_[m]);
  result.latency_p50_ms = quantile(latencies, 0.5);
  result.latency_p99_ms = quantile(latencies, 0.99);
  result.latency_max_ms = *std::max_element(latencies.begin(), latencies.end());
}

void SimulationFacts::set_memory(Simulation& result) const {
  for (std::size_t worker = 0; worker < workers_.size(); ++worker)
    result.workers[worker].peak_bytes = by_worker_[worker].most_bytes;
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    const plan::StepBytes& bytes = input_.stages[stage].bytes;
    plan::StageMemory memory{.versions = schedule_.versions_of(stage), .samples = 0};
    memory.weights = memory.versions * bytes.weight;
    memory.optimizer = bytes.weight + bytes.state;
    for (int replica = 0; replica < lowering_.replicas(stage); ++replica) {
      const int replica_id = lowering_.replica_id(stage, replica);
      memory.samples = std::max(memory.samples, int(by_replica_[replica_id].most_samples));
      memory.stash = std::max(memory.stash, by_replica_[replica_id].most_bytes);
      result.workers[lowering_.worker(replica_id)].peak_bytes += memory.weights + memory.optimizer;
    }
    result.memory.push_back(memory);
  }
}

double Simulation::compute_share(int worker) const {
  return total_ms > 0 ? workers[worker].compute_ms / total_ms : 0;
}

double Simulation::handoff_share(int worker) const {
  return total_ms > 0 ? workers[worker].handoff_ms / total_ms : 0;
}

double Simulation::utilisation() const {
  double sum = 0;
  for (std::size_t worker = 0; worker < workers.size(); ++worker) sum += compute_share(int(worker));
  return sum / double(workers.size());
}

double Simulation::bubble() const {
  double sum = 0;
  for (std::size_t worker = 0; worker < workers.size(); ++worker)
    sum += 1 - compute_share(int(worker)) - handoff_share(int(worker));
  return sum / double(workers.size());
}

std::int64_t enough_samples(const Schedule& schedule) {
  // A stage that is all but the slowest takes long to work off what filling has left before it.
  const std::int64_t fill = last_of_prologues(schedule) + 1 + schedule.in_flight;
  const std::int64_t together = schedule.samples_a_choice();
  return (std::max<std::int64_t>(4 * fill, 2000) + 7 * together) / together * together;
}

double predict(const Schedule& schedule, const std::vector<plan::StageCosts>& stages,
               const plan::Link& link, int cores) {
  SimulationInput input{.samples = enough_samples(schedule), .stages = stages, .cores = cores};
  input.machine.levels.front().link = link;
  input.machine.overlap = plan::Overlap::transfers;
  return simulate(schedule, input).period_ms;
}

std::vector<Span> spans_of(const Simulation& simulation) {
  std::vector<Span> spans;
  const auto ns = [](double ms) { return std::int64_t(std::llround(ms * 1e6)); };
  for (const SimulatedAction& event : simulation.events) {
    spans.push_back({event.worker, event.action, ns(event.compute_start_ms()),
                     ns(event.compute_start_ms() + event.compute_ms)});
  }
  return spans;
}

}  // namespace millrace::engine
