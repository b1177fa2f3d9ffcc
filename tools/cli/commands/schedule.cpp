// `millrace schedule`: prints a schedule as the staircase or as CSV.
#include <unistd.h>  // whether colours are welcome
#include <cstdio>    // columns
#include <iostream>  // results

#include "engine/schedule/registry.h"
#include "engine/schedule/staircase.h"
#include "engine/schedule/verifier.h"
#include "tools/cli/commands/command.h"
#include "tools/cli/commands/schedule_choice.h"
#include "tools/app/config/config.h"

namespace millrace::cli {
namespace {

struct ScheduleArguments : ScheduleChoice {
  std::int64_t samples = 8;
  std::string format = "grid";  ///< grid | csv
};

/// "B4(2)U": the update that follows at once takes no tick of its own.
std::string cell_text(const engine::Cell& cell, bool staged) {
  return engine::action_text(cell.action, staged) + (cell.updates ? "U" : "");
}

const char* colour_of(const engine::Cell& cell) {
  if (cell.updates) return "\x1b[32m";
  switch (cell.action.op) {
    case engine::Op::forward:
      return "\x1b[34m";
    case engine::Op::recompute:
      return "\x1b[36m";
    case engine::Op::backward_weight:
      return "\x1b[35m";
    default:
      return "\x1b[33m";
  }
}

void print_grid(const engine::Schedule& schedule, const engine::Staircase& staircase) {
  const bool colours = isatty(STDOUT_FILENO);
  const bool replicated = !schedule.replicas.empty();
  const bool staged =
      int(schedule.workers.size()) < schedule.stages;  // a worker has several stages
  std::size_t width = 2;
  for (const auto& row : staircase.rows) {
    for (const auto& cell : row) {
      if (cell) width = std::max(width, cell_text(*cell, staged).size());
    }
  }
  for (std::size_t worker = 0; worker < staircase.rows.size(); ++worker) {
    if (replicated) {
      const engine::Program& program = schedule.workers[worker];
      std::printf("stage %d.%d ", stages_of(program)[0], program.replica);
    } else {
      std::printf("%s %zu ", staged ? "worker" : "stage", worker);
    }
    for (const auto& cell : staircase.rows[worker]) {
      const std::string text = cell ? cell_text(*cell, staged) : ".";
      const std::string padding(width + 1 - text.size(), ' ');
      if (cell && colours) {
        std::cout << colour_of(*cell) << text << "\x1b[0m" << padding;
      } else {
        std::cout << text << padding;
      }
      std::cout.flush();
    }
    std::printf("\n");
  }
}

void print_facts(const engine::Schedule& schedule, const engine::Staircase& staircase) {
  std::printf("\nbubble         %.1f %% of the workers' time above\n", 100 * staircase.bubble());
  const auto list = [](const char* name, const auto& values) {
    std::printf("%s", name);
    for (const auto value : values) std::printf(" %lld", static_cast<long long>(value));
    std::printf("\n");
  };
  std::vector<int> versions;
  for (int stage = 0; stage < schedule.stages; ++stage)
    versions.push_back(schedule.versions_of(stage));
  list("versions kept ", versions);
  list("activations   ", staircase.activations);
  list("gradient age  ", engine::gradient_ages(schedule));
}

/// PyTorch's compute-only form: a row a worker, "2F0" for stage 2's forward of sample 0, empty
/// cells for bubbles. Where there is no flush an update has its place in the order, "2U0".
/// PyTorch has no word for recomputation, which is left out.
void print_csv(const engine::Schedule& schedule, const engine::Staircase& staircase) {
  const bool with_updates = !engine::flushes(schedule);
  for (const auto& row : staircase.rows) {
    std::string line;
    for (const auto& cell : row) {
      if (&cell != &row.front()) line += ",";
      if (!cell || cell->action.op == engine::Op::recompute) continue;
      line += engine::action_text(cell->action, true);
      engine::Action update = cell->action;
      update.op = engine::Op::update;
      update.version = -1;
      if (cell->updates && with_updates) line += "," + engine::action_text(update, true);
    }
    std::printf("%s\n", line.c_str());
  }
}

int schedule(const ScheduleArguments& arguments) {
  const engine::Schedule schedule = chosen_schedule(arguments);
  if (const auto fault = engine::verify(schedule)) throw app::ConfigError(fault->text(schedule.name));
  const engine::Staircase staircase = engine::draw_staircase(schedule, arguments.samples);
  if (arguments.format == "csv") {
    print_csv(schedule, staircase);
  } else {
    print_grid(schedule, staircase);
    print_facts(schedule, staircase);
  }
  return kDone;
}

void add_options(CLI::App& command, ScheduleArguments& arguments) {
  add_schedule_choice(command, arguments, 4096);
  std::vector<std::pair<std::string, std::string>> schedules;
  for (const engine::ScheduleEntry& entry : engine::schedule_table())
    schedules.emplace_back(entry.name, entry.summary);
  command.footer(name_list("Schedules", schedules));
  command.add_option("--samples", arguments.samples, "How many")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command.add_option("--format", arguments.format, "grid | csv")
      ->check(CLI::IsMember({"grid", "csv"}));
}

}  // namespace

const Command kSchedule = {"schedule", "Print a schedule as the staircase, or as PyTorch's CSV",
                           add<ScheduleArguments, add_options, schedule>};

}  // namespace millrace::cli
