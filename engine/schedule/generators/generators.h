// One generator a schedule, each in a file of its name.
#pragma once

#include "engine/schedule/schedule.h"

namespace millrace::engine::schedules {

Schedule gpipe(const ScheduleOptions& options);
Schedule interleaved(const ScheduleOptions& options);
Schedule one_forward_one_backward(const ScheduleOptions& options);
Schedule partime(const ScheduleOptions& options);
Schedule pb(const ScheduleOptions& options);
Schedule pipedream(const ScheduleOptions& options);
Schedule pipedream_2bw(const ScheduleOptions& options);
Schedule sequential(const ScheduleOptions& options);
Schedule zb_h1(const ScheduleOptions& options);

}  // namespace millrace::engine::schedules
