#pragma once

#include <memory>
#include <string>

#include "stages/parameters.h"

namespace millrace::stages {

/// Reads a TorchScript archive of parts, functions of inputs and parameters, as one module each:
/// part i is the child "part_i", its name, inputs and parameters are in the extra file
/// "millrace.json", their values in the attributes "w0", "w1", ... Written by
/// tools/bindings/python/millrace/export.py. TorchScript is code: read no file that you would not
/// run. Output shapes are found by one run on zeros, unless `input` has no size. Throws
/// std::invalid_argument, "model.file: ...".
std::shared_ptr<Network> read_network(const std::string& file, const ImageShape& input,
                                      bool channels_last);

/// Throws std::invalid_argument, "model.file: ...".
bool file_ends_in_sigmoid(const std::string& file);

/// The network and its weights as a TorchScript file's bytes: one input, a sample [1,C,H,W], and
/// parameters under the network's names. Throws std::invalid_argument if `state` does not fit.
std::string to_torchscript(const Network& network, const StateDict& state);

/// The last line of a TorchScript error, which has the cause.
inline std::string last_line(std::string text) {
  text.erase(text.find_last_not_of("\n ") + 1);
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace millrace::stages
