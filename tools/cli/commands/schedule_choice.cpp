#include "tools/cli/commands/schedule_choice.h"

#include <stdexcept>  // std::invalid_argument

#include "engine/schedule/schedule_csv.h"
#include "tools/app/config/config.h"

namespace millrace::cli {

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
