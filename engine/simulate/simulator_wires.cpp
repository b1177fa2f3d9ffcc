#include "engine/simulate/simulator_wires.h"

#include <algorithm>  // min, max
#include <limits>     // never goes backward
#include <map>        // links by their ends

namespace millrace::engine {

Units::Units(const Schedule& schedule)
    : replicas(schedule.replica_counts()),
      first_backwards(schedule.stages, std::numeric_limits<std::int64_t>::max()),
      recomputes(schedule.stages, false) {
  int units = 0;
  for (const int count : replicas) {
    first.push_back(units);
    units += count;
  }
  workers.assign(units, 0);
  for (int worker = 0; worker < int(schedule.workers.size()); ++worker) {
    const Program& program = schedule.workers[worker];
    for (const auto* list : {&program.prologue, &program.period}) {
      for (const Action& a : *list) {
        workers[first[a.stage] + program.replica] = worker;
        if (a.op == Op::recompute) recomputes[a.stage] = true;
        if (takes_gradient(a.op))
          first_backwards[a.stage] = std::min(first_backwards[a.stage], a.sample);
      }
    }
  }
}

std::int64_t actions_until(const Program& program, std::int64_t applied) {
  const auto once = std::int64_t(program.prologue.size());
  const auto length = std::int64_t(program.period.size());
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < once; ++i) {
    if (program.prologue[i].sample < applied) end = i + 1;
  }
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t sample = program.period[i].sample;
    if (sample >= applied) continue;
    const std::int64_t rounds = (applied - sample + program.stride - 1) / program.stride;
    end = std::max(end, once + (rounds - 1) * length + i + 1);
  }
  return end;
}

Wires::Wires(const Units& units, const SimulationInput& input) : replicas_(units.replicas) {
  std::map<std::pair<int, int>, int> links;
  const auto add = [&](int from, int to, double bytes) {
    Wire wire{.to = to};
    if (from != to) {
      wire.link = links.try_emplace({from, to}, int(links.size())).first->second;
      wire.ms = input.machine.link_between(from, to).ms(bytes);
    }
    wires_.push_back(std::move(wire));
  };
  for (int stage = 0; stage + 1 < int(replicas_.size()); ++stage) {
    first_.push_back(wires_.size());
    const plan::StepBytes& bytes = input.stages[stage].bytes;
    for (int upper = 0; upper < replicas_[stage]; ++upper) {
      for (int lower = 0; lower < replicas_[stage + 1]; ++lower) {
        const int above = units.workers[units.first[stage] + upper];
        const int below = units.workers[units.first[stage + 1] + lower];
        add(above, below, bytes.activation);
        add(below, above, bytes.gradient);
      }
    }
  }
  links_ = int(links.size());
}

}  // namespace millrace::engine
