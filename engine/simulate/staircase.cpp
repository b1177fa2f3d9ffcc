#include "engine/simulate/staircase.h"

#include "engine/simulate/simulator.h"

namespace millrace::engine {

double Staircase::bubble() const {
  std::size_t busy = 0, all = 0;
  for (const auto& row : rows) {
    all += row.size();
    for (const auto& cell : row) busy += cell.has_value();
  }
  return all > 0 ? 1.0 - double(busy) / double(all) : 0.0;
}

Staircase draw_staircase(const Schedule& schedule, std::int64_t samples) {
  Staircase staircase;
  staircase.rows.resize(schedule.workers.size());
  staircase.activations.assign(std::size_t(schedule.stages), 0);
  if (schedule.applied(samples) == 0) return staircase;
  const Simulation simulation =
      simulate(schedule, {.samples = samples,
                          .stages = std::vector<plan::StageCosts>(std::size_t(schedule.stages)),
                          .ticks = true,
                          .events = true});
  for (auto& row : staircase.rows) row.resize(std::size_t(simulation.total_ms));
  std::vector<std::optional<Cell>*> latest(staircase.rows.size(), nullptr);  // by worker
  for (const SimulatedAction& event : simulation.events) {
    std::optional<Cell>*& cell = latest[std::size_t(event.worker)];
    if (event.action.op == Op::update) {
      if (cell) (*cell)->updates = true;
    } else {
      cell = &staircase.rows[std::size_t(event.worker)][std::size_t(event.start_ms)];
      *cell = Cell{event.action};
    }
  }
  for (std::size_t stage = 0; stage < simulation.memory.size(); ++stage)
    staircase.activations[stage] = simulation.memory[stage].samples;
  return staircase;
}

const char* terminal_colour(Op op) {
  static const char* const colours[] = {"\x1b[34m", "\x1b[36m", "\x1b[33m",
                                        "\x1b[33m", "\x1b[35m", "\x1b[32m"};
  return colours[int(op)];
}

}  // namespace millrace::engine
