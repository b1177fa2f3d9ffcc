// What the config says of samples that are learned from again, and words for it.
#pragma once

#include <optional>
#include <string>

#include "engine/trainer/trainer.h"
#include "tools/app/config/config.h"
#include "tools/app/feeds/replay_feed.h"

namespace millrace::app {

/// As `options` has samples, whose sizes may be 0 (unknown). Throws ConfigError if the machine has
/// not the memory. `resumed`: frames that were learned from before, so that a run that goes on
/// does not choose as its beginning did.
ReplayOptions replay_options(const Config& config, const engine::TrainerOptions& options,
                             std::int64_t resumed = 0);

/// "reservoir of 256 samples, 37.7 MB; as many as real time leaves room for". `live`: whether
/// frames come at their own rate; none: that is not known yet.
std::string describe_replay(const Config& config, const engine::TrainerOptions& options,
                            std::optional<bool> live);

}  // namespace millrace::app
