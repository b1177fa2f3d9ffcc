#include "tools/cli/commands/schedule_choice.h"

#include <iostream>
#include <stdexcept>

#include "tools/app/config/config.h"

namespace millrace::cli {
namespace {

constexpr int kMany = 200;  // stages; more take over a second
/// The verifier's time grows with the cube of the workers. Tests verify the generators' schedules.
constexpr std::size_t kMostVerified = 128;

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
  options.add_option("--stages", choice.stages, "N; unset: 4, or as many as the file has")
      ->check(CLI::Range(1, most_stages));
  options.add_option("--microbatches", choice.microbatches, "Samples per minibatch")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  options.add_option("--virtual-stages", choice.virtual_stages, "interleaved: stages per worker")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  options.add_flag("--vertical-sync", choice.vertical_sync,
                   "pipedream: every stage at stage 0's version");
  options.add_option("--replicas", choice.replicas, "pipedream: workers per stage, as 2,1")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  options.add_flag("--recompute", choice.recompute,
                   "Keep only a sample's input and run forward again to go back");
}

engine::Schedule chosen_schedule(engine::ScheduleSpec spec, int stages) {
  try {
    if (spec.stages == 0) spec.stages = stages;
    if (spec.stages == 0 && engine::is_schedule_file(spec.schedule))
      spec.stages = engine::read_schedule_csv(spec.schedule).stages;
    if (spec.stages == 0) spec.stages = 4;
    if (spec.stages > kMany) std::cerr << spec.stages << " stages take a while\n";
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

}  // namespace millrace::cli
