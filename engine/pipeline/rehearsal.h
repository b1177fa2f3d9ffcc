// Before the workers start: steps that record what they will replay are led through it once.
#pragma once

#include <vector>  // steps

#include "capture/step.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/turns.h"

namespace millrace::engine {

/// Calls the recording ones of `steps` (by Schedule::unit()) in an order that the schedule allows,
/// turn by turn, until slots, versions and groups have met in every way. Nothing is computed that
/// stays. `schedule`: without replicas.
void rehearse(const Schedule& schedule, const Turns& turns,
              const std::vector<capture::Step*>& steps);

}  // namespace millrace::engine
