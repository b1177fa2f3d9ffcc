// One generator a schedule, each in a file of its name.
#pragma once

#include "engine/schedule.h"

namespace millrace::engine::schedules {

Schedule partime(const ScheduleOptions& options);
Schedule sequential(const ScheduleOptions& options);

}  // namespace millrace::engine::schedules
