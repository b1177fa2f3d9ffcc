// Learning rates that follow a schedule.
#pragma once

#include <cstdint>

#include "stages/optimizer_spec.h"

namespace millrace::stages {

/// What spec.lr is multiplied by in the update after `updates` others: the closed forms of
/// torch.optim.lr_scheduler's StepLR and CosineAnnealingLR, after LinearLR for spec.warmup updates
/// (joined as SequentialLR does: the schedule begins when the warm-up ends).
double scheduled_rate(const OptimizerSpec& spec, std::int64_t updates);

/// Whether it is always 1.
bool is_constant(const OptimizerSpec& spec);

}  // namespace millrace::stages
