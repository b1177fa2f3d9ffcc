#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stages/network.h"

namespace millrace::stages {

using StateDict = std::vector<std::pair<std::string, at::Tensor>>;

// Prefixes of a checkpoint's entries that are not weights.
constexpr std::string_view kStateOf = "optimizer.", kHeadStateOf = "optimizer.read_out.";

/// The entry of an optimizer's buffer for a parameter.
inline std::string entry_name(const std::string& buffer, const std::string& parameter) {
  return std::string(kStateOf) + buffer + "." + parameter;
}

/// The entry of a buffer of the auxiliary head of the stage that ends with module `last`.
inline std::string head_entry_name(const std::string& buffer, int last) {
  return std::string(kHeadStateOf) + buffer + "." + std::to_string(last);
}

/// The parameter that `entry` is or belongs to; "": an auxiliary head's.
inline std::string parameter_of(const std::string& entry) {
  if (entry.starts_with(kHeadStateOf)) return "";
  if (!entry.starts_with(kStateOf)) return entry;
  const std::size_t dot = entry.find('.', kStateOf.size());
  return dot == std::string::npos ? "" : entry.substr(dot + 1);
}

/// A stage's weights in one contiguous float32 buffer, so that an update, a copy or a finite check
/// is one operation, however many layers there are. Fixed ones are separate. Thread-bound.
class Parameters {
 public:
  /// `fixed`: another version, whose fixed parameters are shared; or null.
  Parameters(std::vector<ParameterSpec> specs, const at::TensorOptions& options,
             const Parameters* fixed = nullptr);

  /// [count]; views() alias it, except those of fixed parameters. Alignment gaps stay 0.
  at::Tensor& flat() { return flat_; }
  const at::Tensor& flat() const { return flat_; }
  /// A leaf per parameter, in state_dict order; requires grad unless fixed.
  const std::vector<at::Tensor>& views() const { return views_; }
  const std::vector<ParameterSpec>& specs() const { return specs_; }

  /// Whether any parameter is not fixed.
  bool learn() const { return flat_.numel() > 0; }
  /// Views of another buffer laid out as flat(): gradients, optimizer state, a stashed version.
  /// Undefined for fixed parameters.
  std::vector<at::Tensor> views_of(const at::Tensor& flat) const;

  /// For each parameter that is not fixed: its offset in flat(), and its size.
  std::vector<std::int64_t> places() const;

  /// Weights in flat(), without the gaps.
  std::int64_t count() const;

  /// Copies on the CPU, without constants of a file's module.
  StateDict state() const;

 private:
  std::vector<ParameterSpec> specs_;
  std::vector<std::int64_t> offsets_;
  at::Tensor flat_;
  std::vector<at::Tensor> views_;
};

/// The weights of PyTorch's nn.Sequential after torch.manual_seed(seed), for the whole network, so
/// that a stage's weights do not depend on the cut.
StateDict initial_state(const Network& network, std::uint64_t seed);

/// Copies the entries of `state` with the parameters' names; ignores others. Constants of a file's
/// module are as given. Throws std::invalid_argument for a missing name or another shape.
void load_state(Parameters& parameters, const StateDict& state);
/// Adds the other names of parameters that modules share, with the same tensors.
void add_other_names(StateDict& state, const Network& network);

}  // namespace millrace::stages
