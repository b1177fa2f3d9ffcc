// Chooses the correction for old gradients where the config says "auto", and describes it.
#pragma once

#include <string>

#include "engine/trainer/trainer.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// Resolves correction.kind "auto". If gradients are fresh: "none". Else, of a network that predicts
/// changes, "local" where it fits, with heads of kernel 3; of others "inverse-age", the best rule
/// whose gradients come from downstream, with a beta1 of 0, since a running mean makes old gradients
/// even older. A network that predicts changes also gets a warm-up of 50 updates unless the config
/// names the optimizer's kind or schedule. What the config sets stays as it is.
/// docs/old-gradients.md has the figures.
void choose_correction(const Config& config, const engine::Schedule& schedule,
                       engine::TrainerOptions& options);

/// Whether the optimizer keeps a running mean of gradients.
bool has_beta1(const stages::OptimizerSpec& optimizer);

/// "inverse-age (auto): rate / (1 + age in frames), adam's beta1 0".
std::string describe_correction(const Config& config, const engine::TrainerOptions& options);

/// What correction.kind "local" would gain and cost; "" if it can't be used or gains nothing.
std::string local_note(const engine::TrainerOptions& options);

}  // namespace millrace::app
