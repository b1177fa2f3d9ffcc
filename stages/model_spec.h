// What a network is, in words: the [model] table of a config.
#pragma once

#include <cstdint>   // sizes
#include <optional>  // keys a layer may leave out
#include <string>    // names
#include <vector>    // layers

namespace millrace::stages {

/// One `[[model.layer]]` table. A key that the layer's type does not take stays empty.
struct LayerSpec {
  std::string type;                 ///< see layer_types()
  std::optional<std::int64_t> out;  ///< output channels or features
  std::optional<std::int64_t> kernel;
  std::optional<std::int64_t> stride;
  std::optional<std::int64_t> groups;  ///< groupnorm's groups
  std::optional<std::int64_t> factor;  ///< upsample's and pixel-shuffle's factor
  std::optional<double> slope;         ///< leaky-relu's negative slope
  std::optional<std::int64_t> from;    ///< add, concat: an earlier module; -1: the sample
  bool operator==(const LayerSpec&) const = default;
};

/// The [model] table without weights and seed.
struct ModelSpec {
  std::string preset = "partime-cnn";
  int layers = 10;
  int features = 16;
  int kernel = 5;
  int out_channels = 3;
  std::vector<LayerSpec> layer;  ///< preset "layers" only
  bool channels_last = false;    ///< memory layout of samples and activations
};

/// Channels and size of a sample; 0 for a size that is not known before the source is opened.
struct ImageShape {
  std::int64_t channels = 3;
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool operator==(const ImageShape&) const = default;
};

/// Every value LayerSpec::type can take.
const std::vector<std::string>& layer_types();
/// Every value ModelSpec::preset can take.
const std::vector<std::string>& preset_names();

}  // namespace millrace::stages
