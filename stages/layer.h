#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stages/model_spec.h"

namespace millrace::stages {

/// Initialization as in PyTorch's nn modules; see init_parameter().
enum class Init {
  kaiming_uniform,  ///< U(-b, b), b = sqrt(3) * sqrt(2 / (1 + 5)) / sqrt(fan_in): weights
  fan_in_uniform,   ///< U(-b, b), b = 1 / sqrt(fan_in): biases
  he_uniform,       ///< U(-b, b), b = sqrt(6 / fan_in): weights before a ReLU (arXiv 1502.01852)
  ones,
  zeros,
};

/// `name`: relative to the module's index, unless Layer::names_are_whole().
struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  Init init = Init::zeros;
  std::int64_t fan_in = 0;
  at::Tensor given;                    ///< the initial value, instead of `init`
  bool fixed = false;                  ///< gets no gradient and no update
  std::vector<std::string> also = {};  ///< its other names: a parameter that several modules share
};

/// A module as a function of input and parameters, which are passed in, so that it can run at any
/// version of its weights. Immutable, hence reentrant.
class Layer {
 public:
  virtual ~Layer() = default;

  /// For people: "conv 16->16 k5".
  virtual std::string describe() const = 0;
  /// In PyTorch's state_dict order.
  virtual std::vector<ParameterSpec> parameters() const { return {}; }
  /// Whether the names in parameters() are complete, as those from a file.
  virtual bool names_are_whole() const { return false; }
  /// `x[0]`: the previous module's output, [1,C,H,W] (a vector is a picture of one pixel); `x[1]`,
  /// for layers that join two: the output of module `from`. `p`: in the order of parameters().
  /// Recorded in grad mode.
  virtual at::Tensor forward(std::span<const at::Tensor> x,
                             std::span<const at::Tensor> p) const = 0;
};

/// Builds the layer `spec` for an input of shape `shape`, which becomes its output's. `joined`: the
/// output shape of module spec.from; null: none. Throws std::invalid_argument with the fault but
/// not its position.
std::unique_ptr<Layer> make_layer(const LayerSpec& spec, ImageShape& shape,
                                  const ImageShape* joined = nullptr);

}  // namespace millrace::stages
