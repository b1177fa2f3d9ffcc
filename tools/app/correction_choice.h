#pragma once

#include <string>

#include "engine/trainer/trainer.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// Resolves correction.kind "auto": "none" if gradients are fresh; for networks that predict
/// changes, "local" where it fits, with heads of kernel 3; otherwise "inverse-age", the best rule
/// for gradients from downstream, with beta1 = 0, as a running mean makes old gradients even older.
/// Networks that predict changes also get a warm-up of 50 updates unless the config sets the
/// optimizer's kind or schedule. Keys that the config sets stay. See docs/old-gradients.md.
void choose_correction(const Config& config, const engine::Schedule& schedule,
                       engine::TrainerOptions& options);

/// Whether the optimizer keeps a running mean of gradients.
bool has_beta1(const stages::OptimizerSpec& optimizer);

/// "inverse-age (auto): rate / (1 + age in frames), adam's beta1 0".
std::string describe_correction(const Config& config, const engine::TrainerOptions& options);

/// The benefit and cost of correction.kind "local"; "" if it can't be used or gains nothing.
std::string local_note(const engine::TrainerOptions& options);

}  // namespace millrace::app
