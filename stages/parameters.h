// The weights of one stage: one flat buffer, with a view for each parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stages/network.h"

namespace millrace::stages {

/// Names and tensors, as torch's state_dict.
using StateDict = std::vector<std::pair<std::string, at::Tensor>>;

// How a checkpoint names what it holds beside the weights.
constexpr std::string_view kStateOf = "optimizer.", kHeadStateOf = "optimizer.read_out.";

/// An optimizer's buffer for a parameter.
inline std::string entry_name(const std::string& buffer, const std::string& parameter) {
  return std::string(kStateOf) + buffer + "." + parameter;
}

/// An auxiliary head's buffer, of the stage that ends with module `last`.
inline std::string head_entry_name(const std::string& buffer, int last) {
  return std::string(kHeadStateOf) + buffer + "." + std::to_string(last);
}

/// The parameter that `entry` is, or is about; "": it is an auxiliary head's.
inline std::string parameter_of(const std::string& entry) {
  if (entry.starts_with(kHeadStateOf)) return "";
  if (!entry.starts_with(kStateOf)) return entry;
  const std::size_t dot = entry.find('.', kStateOf.size());
  return dot == std::string::npos ? "" : entry.substr(dot + 1);
}

/// One contiguous float32 buffer, so that an update, a copy of a version or a finite check is one
/// operation however many layers a stage has. Fixed ones lie beside it. Thread-bound.
class Parameters {
 public:
  /// `fixed`: another version of the same parameters, whose fixed ones are shared; or null.
  Parameters(std::vector<ParameterSpec> specs, const at::TensorOptions& options,
             const Parameters* fixed = nullptr);

  /// The whole buffer, [count]; views() alias it, but for those of fixed parameters. Gaps between
  /// parameters (for alignment) stay 0.
  at::Tensor& flat() { return flat_; }
  const at::Tensor& flat() const { return flat_; }
  /// One leaf for each parameter, requiring grad unless it is fixed, in state_dict order.
  const std::vector<at::Tensor>& views() const { return views_; }
  const std::vector<ParameterSpec>& specs() const { return specs_; }

  /// Whether any of them is not fixed.
  bool learn() const { return flat_.numel() > 0; }
  /// Views of another buffer laid out as flat(): gradients, optimizer state, a stashed version.
  /// Undefined for fixed parameters.
  std::vector<at::Tensor> views_of(const at::Tensor& flat) const;

  /// Of each that is not fixed: where it begins in flat(), and its size.
  std::vector<std::int64_t> places() const;

  /// Copies of the weights, named, on the CPU.
  StateDict state() const;

 private:
  std::vector<ParameterSpec> specs_;
  std::vector<std::int64_t> offsets_;
  at::Tensor flat_;
  std::vector<at::Tensor> views_;
};

/// The weights PyTorch gives nn.Sequential after torch.manual_seed(seed), for the whole network:
/// a stage's share must not depend on the cut.
StateDict initial_state(const Network& network, std::uint64_t seed);

/// Copies into `parameters` what `state` holds under their names; other names are ignored.
/// Throws std::invalid_argument for a name that is missing or a shape that differs.
void load_state(Parameters& parameters, const StateDict& state);

}  // namespace millrace::stages
