// Weights and optimizer state in a letter from one rank to another.
#pragma once

#include <string>
#include <string_view>

#include "stages/parameters.h"

namespace millrace::engine {

/// Of tensors on the host, whatever their type; for a process of the same build.
std::string to_bytes(const stages::StateDict& state);
/// Throws std::runtime_error for bytes that were cut short.
stages::StateDict state_of(std::string_view bytes);

}  // namespace millrace::engine
