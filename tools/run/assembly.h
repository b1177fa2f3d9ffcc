// From a config to the parts of a run. Shared by run, check and bench.
#pragma once

#include <string>

#include "engine/trainer/trainer.h"
#include "stages/model_spec.h"
#include "tools/config/config.h"

namespace millrace::tools {

/// Trainer options for samples of `shape`; sizes may be 0 (unknown), for checking alone. Loads and
/// checks the weights file or the checkpoint, finds the devices, opens no source. `note`, unless
/// null, is set to a line if the newest checkpoint was damaged and the one before is used, else "".
/// Throws ConfigError naming the place in the config.
engine::TrainerOptions assemble(const Config& config, const stages::ImageShape& shape,
                                std::string* note = nullptr);

/// What correction.kind "auto" stands for: none where gradients are fresh, local where a stage goes
/// back through a sample at once (partime) and its maps have the target's size, else inverse-age.
/// docs/benchmarks/learning.md shows why.
std::string best_correction(const engine::TrainerOptions& options,
                            const engine::Schedule& schedule);

/// The shape as far as the config says.
stages::ImageShape configured_shape(const Config& config);

}  // namespace millrace::tools
