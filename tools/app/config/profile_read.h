#pragma once

#include "engine/plan/profile.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// Measures the config's network on this machine's devices. `speeds`, unless null, receives the
/// speed for each number of cores tried.
engine::plan::Profile profile_of(const Config& config,
                                 std::vector<engine::plan::Measured>* speeds = nullptr);

/// Reads a profile: our JSON, or PipeDream's graph.txt for `frames` frames. Throws ConfigError.
engine::plan::Profile read_profile(const std::string& path, int frames);

}  // namespace millrace::app
