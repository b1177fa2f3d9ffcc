// One module of a network, as a function of its input and its parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stages/model_spec.h"

namespace millrace::stages {

/// How PyTorch's nn modules fill a parameter; see init_parameter().
enum class Init {
  kaiming_uniform,  ///< U(-b, b), b = sqrt(3) * sqrt(2 / (1 + 5)) / sqrt(fan_in): weights
  fan_in_uniform,   ///< U(-b, b), b = 1 / sqrt(fan_in): biases
  he_uniform,       ///< U(-b, b), b = sqrt(6 / fan_in): weights before a ReLU (arXiv 1502.01852)
  ones,
  zeros,
};

/// Name (below the module's index, unless the layer says what it is in whole), shape and initial
/// value of one parameter.
struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  Init init = Init::zeros;
  std::int64_t fan_in = 0;
  at::Tensor given;    ///< the initial value itself, in place of `init`
  bool fixed = false;  ///< takes no gradient and no update
};

/// A module without state of its own: parameters are passed in, so that the same layer can run at
/// any version of its weights. Immutable after construction, hence reentrant.
class Layer {
 public:
  virtual ~Layer() = default;

  /// For people: "conv 16->16 k5".
  virtual std::string describe() const = 0;
  /// In PyTorch's state_dict order.
  virtual std::vector<ParameterSpec> parameters() const { return {}; }
  /// Whether parameters() gives names that hold for the whole network: a file's own.
  virtual bool names_are_whole() const { return false; }
  /// `x[0]`: what the module before gives, [1,C,H,W], a vector being a picture of one pixel; layers
  /// that join two have in `x[1]` what the module `from` gives. `p`: as parameters() lists them.
  /// Recorded by autograd when grad mode is on.
  virtual at::Tensor forward(std::span<const at::Tensor> x,
                             std::span<const at::Tensor> p) const = 0;
};

/// Builds the layer `spec` describes on an input of shape `shape`, and moves `shape` on to its
/// output. `joined`: the shape of what the module spec.from gives; null if there is none.
/// Throws std::invalid_argument: "what is wrong", without naming the layer's place.
std::unique_ptr<Layer> make_layer(const LayerSpec& spec, ImageShape& shape,
                                  const ImageShape* joined = nullptr);

}  // namespace millrace::stages
