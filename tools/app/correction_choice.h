// What is done about old gradients where the config leaves it open, and words for it.
#pragma once

#include <string>

#include "engine/trainer/trainer.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// Puts in place of correction.kind "auto" what it stands for. Where gradients are fresh: "none".
/// Else "inverse-age", the best rule whose gradients come from downstream, and, unless the config
/// names optimizer.beta1, a beta1 of 0, since a running mean makes old gradients older still.
/// docs/benchmarks/learning.md has the figures.
void choose_correction(const Config& config, const engine::Schedule& schedule,
                       engine::TrainerOptions& options);

/// Whether the optimizer keeps a running mean of gradients.
bool has_beta1(const stages::OptimizerSpec& optimizer);

/// "inverse-age (auto): rate / (1 + age in frames), adam's beta1 0".
std::string describe_correction(const Config& config, const engine::TrainerOptions& options);

/// What correction.kind "local" would buy and cost these stages; "" where it has nothing to offer.
std::string local_note(const engine::TrainerOptions& options);

}  // namespace millrace::app
