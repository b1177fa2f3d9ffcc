// Which schedule a command is about: the options of `millrace schedule` and `millrace simulate`.
#pragma once

#include "engine/schedule/schedule.h"
#include "tools/cli/commands/command.h"

namespace millrace::cli {

/// A schedule by name and parameters.
struct ScheduleChoice : engine::ScheduleSpec {
  ScheduleChoice() { stages = 0; }  ///< 4, or as many as the file has
};

/// Adds the name and the options, which go to `choice`.
void add_schedule_choice(CLI::App& options, ScheduleChoice& choice, int most_stages);

/// The schedule, verified unless a generator made it for many workers. `stages`: how many without
/// --stages; 0: 4, or as many as the file has. Throws ConfigError.
engine::Schedule chosen_schedule(const ScheduleChoice& choice, int stages = 0);

}  // namespace millrace::cli
