// A network from PyTorch: what tools/bindings/python/millrace/export.py writes.
#pragma once

#include <memory>
#include <string>

#include "stages/network.h"

namespace millrace::stages {

/// Reads a TorchScript archive whose parts are functions of inputs and parameters, a module each:
/// part i is the child "part_i", with its name, inputs and parameters in the extra file
/// "millrace.json" and their values in the attributes "w0", "w1", ... TorchScript is code, so
/// read no file that you would not run. The shapes that parts give are found by running them once
/// on a sample of zeros, unless `input` has no size. Throws std::invalid_argument, "model.file:
/// ...".
std::shared_ptr<Network> read_network(const std::string& file, const ImageShape& input,
                                      bool channels_last);

/// Whether its last part ends in a sigmoid. Throws as read_network().
bool file_ends_in_sigmoid(const std::string& file);

}  // namespace millrace::stages
