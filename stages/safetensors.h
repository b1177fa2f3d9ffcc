// Safetensors files: an 8-byte header size, a JSON header, then the data.
// Format: https://huggingface.co/docs/safetensors.
#pragma once

#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

#include "stages/parameters.h"

namespace millrace::stages {

/// An unreadable weights file: "what is wrong", without the path.
struct WeightsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The file's "__metadata__", without its format.
using Metadata = std::map<std::string, std::string>;

/// The file's bytes for `state` (float32 on the CPU), in order, aligned to 8 bytes.
std::string to_safetensors(const StateDict& state, const Metadata& metadata = {});

/// Opens a regular file, not a pipe that nobody may ever write. Throws WeightsError.
std::ifstream open_regular(const std::string& path);

/// Reads float32 tensors from a file's bytes. The header is capped at 16 MiB and every offset is
/// checked against the file before anything is allocated, so a crafted file costs no more memory
/// than its own size. Skips the batch counts of PyTorch's batch norms. `metadata` may be null.
/// Throws WeightsError.
StateDict from_safetensors(std::string bytes, Metadata* metadata = nullptr);

}  // namespace millrace::stages
