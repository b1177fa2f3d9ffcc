// From a config to the parts of a run. Shared by run, check and bench.
#pragma once

#include "engine/trainer/trainer.h"
#include "stages/model_spec.h"
#include "tools/config/config.h"

namespace millrace::tools {

/// Trainer options for samples of `shape`; sizes may be 0 (unknown), for checking alone. Loads and
/// checks the weights file, finds the devices, opens no source.
/// Throws ConfigError naming the place in the config.
engine::TrainerOptions assemble(const Config& config, const stages::ImageShape& shape);

/// What correction.kind "auto" stands for: none where gradients are fresh, local where a stage goes
/// back through a sample at once (partime) and its maps have the target's size, else inverse-age.
/// docs/benchmarks/learning.md shows why.
std::string best_correction(const engine::TrainerOptions& options,
                            const engine::Schedule& schedule);

/// Where checkpoints of `config` lie.
std::string checkpoint_file(const Config& config);

/// The shape as far as the config says.
stages::ImageShape configured_shape(const Config& config);

}  // namespace millrace::tools
