// Layers made of one function, and building blocks of other layers. For this folder only.
#pragma once

#include <functional>
#include <memory>

#include "stages/layer.h"

namespace millrace::stages {

using Values = std::span<const at::Tensor>;

/// A Layer as data.
struct LayerFunction {
  std::string text;  ///< describe()
  std::vector<ParameterSpec> parameters{};
  std::function<at::Tensor(Values x, Values p)> of{};  ///< forward()
  bool names_are_whole = false;                        ///< as Layer's
  /// Treats each channel alone: any part of its input gives that part of its output.
  bool by_channel = false;
  // For tensor parallelism, for a matrix between channels (a convolution, a linear layer): makes
  // one of `ways` equal parts; null if impossible. `column`: a part of the output's channels, from
  // the whole input.
  std::function<std::unique_ptr<Layer>(int ways)> column{};
  /// A summand of the whole output, from a part of the input's channels; the bias may be undefined.
  std::function<std::unique_ptr<Layer>(int ways)> row{};
};

class FunctionLayer final : public Layer {
 public:
  explicit FunctionLayer(LayerFunction function) : is(std::move(function)) {}
  std::string describe() const override { return is.text; }
  std::vector<ParameterSpec> parameters() const override { return is.parameters; }
  bool names_are_whole() const override { return is.names_are_whole; }
  at::Tensor forward(Values x, Values p) const override { return is.of(x, p); }

  const LayerFunction is;
};

inline std::unique_ptr<Layer> layer_of(LayerFunction function) {
  return std::make_unique<FunctionLayer>(std::move(function));
}

/// Throws std::invalid_argument unless `groups` divides the input's `channels`.
void require_groups(std::int64_t groups, std::int64_t channels);
/// Throws std::invalid_argument for an even `kernel`.
void require_odd(std::int64_t kernel);

/// Convolution with bias, square odd kernel, padding kernel/2. fan_in = in * kernel^2. `init`: of
/// its weights, with a bias of zeros; kaiming_uniform: both as in PyTorch.
std::unique_ptr<Layer> make_conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                 std::int64_t stride, std::int64_t groups = 1,
                                 Init init = Init::kaiming_uniform);

/// Adds latest_frame() of the sample, its second input, to its input.
std::unique_ptr<Layer> make_change(std::int64_t channels);
at::Tensor latest_frame(const at::Tensor& sample, std::int64_t channels);

/// Throws as require_groups().
std::unique_ptr<Layer> make_group_norm(std::int64_t groups, std::int64_t channels);

}  // namespace millrace::stages
