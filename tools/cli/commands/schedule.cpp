#include "tools/cli/commands/schedule.h"

#include <unistd.h>

#include <iostream>
#include <stdexcept>

#include "engine/format.h"
#include "engine/schedule/registry.h"
#include "engine/schedule/schedule_csv.h"
#include "engine/schedule/verifier.h"
#include "engine/simulate/timeline.h"
#include "tools/app/config/config.h"

namespace millrace::cli {
namespace {

constexpr int kManyStages = 200,
              kManySamples = 10'000;  // stages, times microbatches: over a second
/// The verifier's time grows with the cube of the workers. Tests verify the generators' schedules.
constexpr std::size_t kMostVerified = 128;

struct ScheduleArguments : engine::ScheduleSpec {
  std::int64_t samples = 8;
  std::string format = "grid";  ///< or csv
};

/// ANSI, by operation.
constexpr const char* kColours[] = {"\x1b[34m", "\x1b[31m", "\x1b[36m", "\x1b[33m",
                                    "\x1b[33m", "\x1b[35m", "\x1b[32m"};

std::string grid_text(const engine::Schedule& schedule, const engine::Staircase& staircase) {
  const bool colours = isatty(STDOUT_FILENO);
  const bool staged = int(schedule.workers.size()) < schedule.stages;  // several stages per worker
  std::size_t width = 2;
  for (const auto& row : staircase.rows) {
    for (const auto& cell : row)
      if (cell) width = std::max(width, cell->text(staged).size());
  }
  const std::vector<std::string> names = engine::worker_names(schedule);
  std::string grid;
  for (std::size_t worker = 0; worker < names.size(); ++worker) {
    grid += names[worker] + " ";
    for (const auto& cell : staircase.rows[worker]) {
      const std::string text = cell ? cell->text(staged) : ".";
      const bool coloured = cell && colours;
      if (coloured) grid += kColours[int(cell->updates ? engine::Op::update : cell->action.op)];
      grid += text + (coloured ? "\x1b[0m" : "") + std::string(width + 1 - text.size(), ' ');
    }
    grid += "\n";
  }
  return grid;
}

std::string facts_text(const engine::Schedule& schedule, const engine::Staircase& staircase,
                       std::int64_t samples) {
  std::string text = engine::format("\nbubble         %.1f %% of the workers' time above\n",
                                    100 * staircase.bubble());
  const auto list = [&](const char* name, const auto& values) {
    text += name;
    for (const auto value : values) text += " " + std::to_string(value);
    text += "\n";
  };
  std::vector<int> versions;
  for (int stage = 0; stage < schedule.stages; ++stage)
    versions.push_back(schedule.versions_of(stage));
  list("versions kept ", versions);
  list("activations   ", staircase.activations);
  list("gradient age  ", engine::gradient_ages(schedule));
  if (const std::int64_t left = samples - schedule.applied(samples); left > 0) {
    text += engine::format(
        "left out       the last %ld of %ld samples, which fill no minibatch of %d\n", left,
        samples, schedule.group);
  }
  return text;
}

/// PyTorch's compute-only form: a row per worker, "2F0" for stage 2's forward of sample 0, empty
/// cells for bubbles. Without a flush, updates are listed in order, "2U0". Leaves out
/// recomputation, for which PyTorch has no action.
std::string csv_text(const engine::Schedule& schedule, const engine::Staircase& staircase) {
  std::string text;
  for (const auto& row : staircase.rows) {
    for (const auto& cell : row) {
      if (&cell != &row.front()) text += ",";
      if (!cell || cell->action.op == engine::Op::recompute) continue;
      text += engine::action_text(cell->action, true);
      if (!cell->updates || schedule.flushes()) continue;
      const engine::Action& a = cell->action;
      text += "," + engine::action_text({engine::Op::update, a.stage, a.sample}, true);
    }
    text += "\n";
  }
  return text;
}

int schedule(const ScheduleArguments& arguments) {
  const engine::Schedule schedule = chosen_schedule(arguments);
  const engine::Staircase staircase = engine::draw_staircase(schedule, arguments.samples);
  std::cout << (arguments.format == "csv" ? csv_text(schedule, staircase)
                                          : grid_text(schedule, staircase) +
                                                facts_text(schedule, staircase, arguments.samples));
  return kDone;
}

void add_options(CLI::App& options, ScheduleArguments& arguments) {
  add_schedule_choice(options, arguments, 1024);
  std::string names = "Schedules:";
  for (const engine::ScheduleEntry& entry : engine::schedule_table())
    names += engine::format("\n  %-11s  %s", entry.name, entry.summary);
  options.footer(names);
  add_number(options, "--samples", arguments.samples, "How many", 1, 100000)->capture_default_str();
  options.add_option("--format", arguments.format, "grid | csv")
      ->check(CLI::IsMember({"grid", "csv"}));
}

}  // namespace

void add_schedule_choice(CLI::App& options, engine::ScheduleSpec& choice, int most_stages) {
  choice.stages = 0;
  const CLI::Validator named = CLI::IsMember(engine::schedule_names());
  options
      .add_option("name", choice.schedule,
                  "Schedule, or a CSV file of torch.distributed.pipelining")
      ->required()
      ->check(
          [named](const std::string& name) {
            return engine::is_schedule_file(name) ? std::string() : named(name);
          },
          named.get_description());
  add_number(options, "--stages", choice.stages, "N; unset: 4, or as many as the file has", 1,
             most_stages);
  add_number(options, "--microbatches", choice.microbatches, "Samples per minibatch", 1, 65536)
      ->capture_default_str();
  add_number(options, "--virtual-stages", choice.virtual_stages, "interleaved: stages per worker",
             1, 1024)
      ->capture_default_str();
  options.add_flag("--vertical-sync", choice.vertical_sync,
                   "pipedream: every stage at stage 0's version");
  add_number(options, "--replicas", choice.replicas, "pipedream: workers per stage, as 2,1", 1,
             1024);
  options.add_flag("--recompute", choice.recompute,
                   "Keep only a sample's input and recompute the forward before the backward");
  options.add_flag("--deep-supervision", choice.deep_supervision,
                   "partime, pb: each stage but the last also learns from a loss of its own");
}

engine::Schedule chosen_schedule(engine::ScheduleSpec spec, int stages) {
  try {
    if (spec.stages == 0) spec.stages = stages;
    if (spec.stages == 0 && engine::is_schedule_file(spec.schedule))
      spec.stages = engine::read_schedule_csv(spec.schedule).stages;
    if (spec.stages == 0) spec.stages = 4;
    const bool minibatches = !engine::is_schedule_file(spec.schedule) &&
                             engine::schedule_entry(spec.schedule).minibatches;
    const bool much = minibatches && spec.stages * spec.microbatches > kManySamples;
    if (spec.stages > kManyStages || much)
      std::cerr << spec.stages << " stages"
                << (much ? " x " + std::to_string(spec.microbatches) + " microbatches" : "")
                << " take a while\n";
    const engine::Schedule schedule = engine::make_schedule(spec);
    const bool verifies =
        schedule.workers.size() <= kMostVerified || engine::is_schedule_file(spec.schedule);
    if (const auto fault = verifies ? engine::verify(schedule) : std::nullopt)
      throw app::ConfigError(fault->text(schedule.name));
    return schedule;
  } catch (const std::invalid_argument& error) {
    const std::string what = error.what();
    throw app::ConfigError(what.starts_with(spec.schedule) ? what : spec.schedule + ": " + what);
  }
}

const Command kSchedule = {40, "schedule", "Print a schedule as the staircase, or as PyTorch's CSV",
                           add<ScheduleArguments, add_options, schedule>};

}  // namespace millrace::cli
