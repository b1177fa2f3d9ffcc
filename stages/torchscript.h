#pragma once

#include <string>

#include "stages/parameters.h"

namespace millrace::stages {

/// The network and its weights as a TorchScript file's bytes: one input, a sample [1,C,H,W], and
/// parameters under the network's names. Throws std::invalid_argument if `state` does not fit.
std::string to_torchscript(const Network& network, const StateDict& state);

/// The last line of a TorchScript error, which says what happened.
std::string last_line(std::string text);

}  // namespace millrace::stages
