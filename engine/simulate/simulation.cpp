#include "engine/simulate/simulation.h"

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

}  // namespace

std::vector<plan::StageCosts> GivenCosts::of(int stages, const std::string& prefix) const {
  const auto at = [&](const char* name, const std::vector<double>& values, int stage) {
    require(values.size() == 1 || int(values.size()) == stages,
            prefix + name + " has " + std::to_string(values.size()) +
                " values: it takes one, or one for each of the " + std::to_string(stages) +
                " stages");
    return values.size() == 1 ? values[0] : values[stage];
  };
  std::vector<plan::StageCosts> costs;
  for (int i = 0; i < stages; ++i) {
    const double back = at("backward", backward, i) / 2;
    costs.push_back({{at("forward", forward, i), back, back, at("update", update, i)}, bytes});
  }
  return costs;
}

std::int64_t last_of_prologues(const Schedule& schedule) {
  std::int64_t last = -1;
  for (const Program& program : schedule.workers) {
    for (const Action& action : program.prologue) last = std::max(last, action.sample);
  }
  return last;
}

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
  require(fine_number(input.delay_ms), "the message delay must be a number >= 0");
  require(fine_number(input.overhead_ms), "the overhead of an action must be a number >= 0");
  require(std::isfinite(input.contention) && input.contention > 0, "contention must be above 0");
  require(fine_number(input.source_period_ms), "the source's period must be a number >= 0");
  require(input.cores >= 0, "cores must be 0 (one a worker) or more");
  require(input.samples >= 1, "a simulation needs at least 1 sample");
  require(schedule.applied(input.samples) > 0, std::to_string(input.samples) +
                                                   " samples do not fill a minibatch of " +
                                                   std::to_string(schedule.group));
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
  // A stage almost as slow as the slowest takes long to work off the queue left by filling.
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
