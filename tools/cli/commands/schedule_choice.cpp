#include "tools/cli/commands/schedule_choice.h"

#include <CLI/CLI.hpp>
#include <stdexcept>

#include "engine/schedule/schedule_csv.h"
#include "tools/app/config/config.h"

namespace millrace::cli {

void add_schedule_choice(CLI::App& command, ScheduleChoice& choice, std::int64_t most_stages) {
  command
      .add_option("name", choice.schedule,
                  "Schedule, or a CSV file of torch.distributed.pipelining")
      ->required()
      ->check([](const std::string& name) {
        if (engine::is_schedule_file(name)) return std::string();
        return CLI::IsMember(engine::schedule_names())(name);
      });
  command.add_option("--stages", choice.stages, "N; unset: 4, or as many as the file has")
      ->check(CLI::Range(std::int64_t(1), most_stages));
  command.add_option("--microbatches", choice.microbatches, "Samples a minibatch")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command.add_option("--virtual-stages", choice.virtual_stages, "interleaved: stages a worker")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_flag("--vertical-sync", choice.vertical_sync,
                   "pipedream: every stage at stage 0's version");
  command.add_option("--replicas", choice.replicas, "pipedream: workers a stage, as 2,1")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command.add_flag("--recompute", choice.recompute,
                   "Keep a sample's input alone and run forward again to go back");
}

engine::Schedule chosen_schedule(const ScheduleChoice& choice, int stages) {
  engine::ScheduleSpec spec = choice;
  try {
    if (spec.stages == 0) spec.stages = stages;
    if (spec.stages == 0 && engine::is_schedule_file(spec.schedule))
      spec.stages = engine::read_schedule_csv(spec.schedule).stages;
    if (spec.stages == 0) spec.stages = 4;
    return engine::make_schedule(spec);
  } catch (const std::invalid_argument& error) {
    const std::string what = error.what();
    throw app::ConfigError(what.starts_with(spec.schedule) ? what : spec.schedule + ": " + what);
  }
}

}  // namespace millrace::cli
