// The config's [replay], checked and described.
#pragma once

#include <optional>
#include <string>

#include "engine/trainer/trainer.h"
#include "tools/app/config/config.h"
#include "tools/app/feeds/replay_feed.h"

namespace millrace::app {

/// For samples as `options` has them; their sizes may be 0 (unknown). Throws ConfigError if the
/// machine lacks the memory. `resumed`: frames before the checkpoint, so that a resumed run does
/// not repeat its beginning's random choices.
ReplayOptions replay_options(const Config& config, const engine::TrainerOptions& options,
                             std::int64_t resumed = 0);

/// "reservoir of 256 samples, 37.7 MB; as many as real time leaves room for". `live`: whether
/// frames arrive at their own rate; none: unknown.
std::string describe_replay(const Config& config, const engine::TrainerOptions& options,
                            std::optional<bool> live);

}  // namespace millrace::app
