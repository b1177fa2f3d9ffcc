#include <algorithm>
#include <cmath>

#include "engine/format.h"
#include "engine/simulate/timeline.h"

namespace millrace::engine {
namespace {

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::size_t widest(const std::vector<std::string>& names) {
  std::size_t width = 0;
  for (const std::string& name : names) width = std::max(width, name.size());
  return width;
}

std::string bar(double compute, double handoff, int width) {
  const int first = int(std::lround(compute * width));
  const int second = int(std::lround((compute + handoff) * width)) - first;
  return std::string(first, '#') + std::string(second, '+') +
         std::string(std::max(0, width - first - second), '.');
}

std::string name_of(Action action, bool with_stage) {
  action.version = -1;
  return action_text(action, with_stage);
}

/// A worker's characters, and the operation that colours each; -1: none.
struct Row {
  std::string text;
  std::vector<int> ops;

  explicit Row(int columns) : text(columns, '.'), ops(columns, -1) {}
  void fill(int from, int to, char c, int op) {
    for (int at = std::max(0, from); at < std::min(to, int(text.size())); ++at) {
      text[at] = c;
      ops[at] = op;
    }
  }
  void write(int from, int to, const std::string& name, int op) {
    fill(from, to, '-', op);
    for (int i = 0; i < int(name.size()) && from + i < to && from + i < int(text.size()); ++i)
      text[from + i] = name[i];
  }
  std::string coloured() const {
    std::string line;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (at == 0 || ops[at] != ops[at - 1])
        line += ops[at] < 0 ? "\x1b[0m" : terminal_colour(Op(ops[at]));
      line += text[at];
    }
    return line + "\x1b[0m";
  }
};

/// Milliseconds per character: a forward is as wide as the longest name and a hyphen.
double scale_of(const Simulation& simulation, bool staged, int columns, double& shown_ms) {
  double shortest = 0;
  std::size_t width = 2;
  for (const SimulatedAction& event : simulation.events) {
    if (event.action.op == Op::update || event.compute_ms <= 0) continue;
    if (event.action.op == Op::forward)
      shortest = shortest > 0 ? std::min(shortest, event.compute_ms) : event.compute_ms;
    width = std::max(width, name_of(event.action, staged).size());
  }
  if (shortest <= 0) shortest = simulation.total_ms;
  const double scale = shortest > 0 ? shortest / double(width + 1) : 1;
  shown_ms = std::min(simulation.total_ms, scale * columns);
  return scale;
}

}  // namespace

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
  std::vector<std::optional<Cell>*> latest(staircase.rows.size(), nullptr);  // [worker]
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
  static const char* const colours[] = {"\x1b[34m", "\x1b[31m", "\x1b[36m", "\x1b[33m",
                                        "\x1b[33m", "\x1b[35m", "\x1b[32m"};
  return colours[int(op)];
}

std::string utilisation_bars(const Schedule& schedule, const Simulation& simulation, int width,
                             int most) {
  const std::vector<std::string> names = worker_names(schedule);
  const int workers = int(names.size()), each = (workers + most - 1) / most;
  const std::size_t margin =
      each > 1 ? names.front().size() + names.back().size() + 3 : widest(names);
  std::string text;
  for (int first = 0; first < workers; first += each) {
    const int end = std::min(workers, first + each);
    double compute = 0, handoff = 0;
    for (int worker = first; worker < end; ++worker) {
      compute += simulation.compute_share(worker) / (end - first);
      handoff += simulation.handoff_share(worker) / (end - first);
    }
    const std::string shares =
        format(" %5.1f %5.1f %5.1f\n", 100 * compute, 100 * handoff, 100 * (1 - compute - handoff));
    const std::string name = end - first > 1 ? names[first] + " - " + names[end - 1] : names[first];
    text += padded(name, margin) + " " + bar(compute, handoff, width) + shares;
  }
  return padded("", margin + std::size_t(width) + 1) + "  work  hand  idle %\n" + text;
}

std::string timeline_text(const Schedule& schedule, const Simulation& simulation, int columns,
                          int most, bool colours) {
  const std::vector<std::string> names = worker_names(schedule);
  const std::size_t margin = widest(names);
  columns = std::max(20, columns - int(margin) - 1);
  const bool staged = int(schedule.workers.size()) < schedule.stages;
  double shown_ms = 0;
  const double scale = scale_of(simulation, staged, columns, shown_ms);
  const auto at = [&](double ms) { return int(std::lround(std::min(ms, shown_ms) / scale)); };
  const int rows = std::min(most, int(names.size()));
  std::vector<Row> lines(rows, Row(at(shown_ms)));
  for (const SimulatedAction& event : simulation.events) {
    if (event.worker >= rows || event.start_ms >= shown_ms) continue;
    const double begin = event.compute_start_ms(), end = begin + event.compute_ms;
    Row& row = lines[event.worker];
    row.fill(at(event.start_ms), at(begin), '+', -1);
    row.write(at(begin), at(end), name_of(event.action, staged), int(event.action.op));
    row.fill(at(end), at(event.end_ms()), '+', -1);
  }
  std::string text;
  for (int worker = 0; worker < rows; ++worker) {
    const Row& row = lines[worker];
    text += padded(names[worker], margin) + " " + (colours ? row.coloured() : row.text) + "\n";
  }
  const std::string legend =
      format("a character is %.3g ms; shown are %.4g of %.4g ms, %d of %zu workers\n", scale,
             shown_ms, simulation.total_ms, rows, names.size());
  return text + legend;
}

}  // namespace millrace::engine
