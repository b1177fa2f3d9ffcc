// A network with its weights as one TorchScript module, for exporters that read that; and what
// TorchScript says.
#pragma once

#include <string>

#include "stages/parameters.h"

namespace millrace::stages {

/// The bytes of a TorchScript file: a module of one input, a sample [1,C,H,W], whose parameters
/// have the network's names. Throws std::invalid_argument if `state` does not fit.
std::string to_torchscript(const Network& network, const StateDict& state);

/// The line of one of TorchScript's errors that says what happened: the last, after where.
std::string last_line(std::string text);

}  // namespace millrace::stages
