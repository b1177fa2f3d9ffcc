// Where a command gets a network's profile from.
#pragma once

#include "engine/plan/profile.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// Measures the network that `config` describes, on this machine's devices.
/// `speeds`: takes every speed by cores that was tried; null: nobody asks.
engine::plan::Profile profile_of(const Config& config,
                                 std::vector<engine::plan::Measured>* speeds = nullptr);

/// Reads a profile file: our JSON, or PipeDream's graph.txt, whose figures are for `frames` at
/// once. Throws ConfigError.
engine::plan::Profile read_profile(const std::string& path, int frames);

}  // namespace millrace::app
