#pragma once

#include "engine/schedule/schedule.h"
#include "tools/cli/commands/command.h"

namespace millrace::cli {

/// Adds the name and its options, which set `choice`; without --stages it has 0.
void add_schedule_choice(CLI::App& options, engine::ScheduleSpec& choice, int most_stages);

/// The schedule, verified unless a generator made it for many workers. `stages`: the number without
/// --stages; 0: 4, or as many as in the file. Throws ConfigError.
engine::Schedule chosen_schedule(engine::ScheduleSpec spec, int stages = 0);

}  // namespace millrace::cli
