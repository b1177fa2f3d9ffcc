// Where threads make stages unequal.
#pragma once

#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

/// Chooses threads that were left open, the cut for stages of unequal threads if it was, and then
/// their cores, by the times that modules take as step programs. False if there was nothing to
/// weigh: then each stage whose threads were left open has one, and the cut is as it was.
bool balance_threads(TrainerOptions& options);

}  // namespace millrace::engine
