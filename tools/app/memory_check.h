#pragma once

#include "engine/trainer/trainer_options.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// Bytes that this process may use: the machine's memory, or its control group's if that is less.
double memory_there();

/// Throws ConfigError if the stages on cores take more than memory_there(): what is missing, and
/// what would fit. Allocates nothing. Counts the weights of each version, the inputs that their
/// gradients need and the optimizer's state, so a run takes more. Sizes may be 0 (unknown).
void require_memory(const Config& config, const engine::TrainerOptions& options);

}  // namespace millrace::app
