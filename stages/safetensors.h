// Weights as safetensors files: an 8-byte header size, a JSON header, then the bytes.
// Format: https://huggingface.co/docs/safetensors.
#pragma once

#include <map>
#include <stdexcept>
#include <string>

#include "stages/parameters.h"

namespace millrace::stages {

/// A weights file that can't be read. "what is wrong", without the path.
struct WeightsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The file's "__metadata__" beside its format: words about the tensors.
using Metadata = std::map<std::string, std::string>;

/// The file's bytes for `state` (on the CPU, as float32), in order, tensors aligned to 8 bytes.
std::string to_safetensors(const StateDict& state, const Metadata& metadata = {});

/// Reads float32 tensors. The header is capped at 16 MiB and every offset is checked against the
/// file before anything is allocated, so a crafted file costs no more memory than its own size.
/// Counts of batches that PyTorch's batch norms keep are passed over. `metadata`, unless null, is
/// set to what the file says about them. Throws WeightsError.
StateDict read_safetensors(const std::string& path, Metadata* metadata = nullptr);
/// The same of a file's bytes, as to_safetensors() gave them.
StateDict from_safetensors(std::string bytes, Metadata* metadata = nullptr);

}  // namespace millrace::stages
