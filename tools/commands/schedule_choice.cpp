#include "tools/commands/schedule_choice.h"

#include <stdexcept>  // std::invalid_argument

#include "engine/schedule/schedule_csv.h"
#include "tools/config/config.h"

namespace millrace::tools {

engine::Schedule chosen_schedule(const ScheduleChoice& choice, int stages) {
  if (choice.stages > 0) stages = int(choice.stages);
  try {
    if (stages == 0)
      stages =
          engine::is_schedule_file(choice.name) ? engine::read_schedule_csv(choice.name).stages : 4;
    return engine::make_schedule(choice.name, {.stages = stages,
                                               .microbatches = int(choice.microbatches),
                                               .virtual_stages = int(choice.virtual_stages),
                                               .vertical_sync = choice.vertical_sync,
                                               .replicas = choice.replicas,
                                               .recompute = choice.recompute});
  } catch (const std::invalid_argument& error) {
    const std::string what = error.what();
    throw ConfigError(what.starts_with(choice.name) ? what : choice.name + ": " + what);
  }
}

}  // namespace millrace::tools
