#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace millrace::stages {

/// Shape of a sample; sizes are 0 if not known before the source is opened.
struct ImageShape {
  std::int64_t channels = 3;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::int64_t> sizes() const { return {1, channels, height, width}; }  ///< of a tensor
  bool operator==(const ImageShape&) const = default;
};

/// The required output: the sample's shape, a number per class, numbers for each of the sample's
/// pixels, or the shape of any target.
enum class Gives { picture, vector, map, anything };

/// How many past frames a sample holds, and whether changes are predicted.
struct Forecast {
  int context = 1;      ///< frames in a sample; the channels of the latest come last
  bool change = false;  ///< the network outputs the change to the latest frame
};

/// One `[[model.layer]]` table. Keys that the layer's type does not have stay empty.
struct LayerSpec {
  std::string type;  ///< see layer_types()
  std::optional<std::int64_t> out;
  std::optional<std::int64_t> kernel;
  std::optional<std::int64_t> stride;
  std::optional<std::int64_t> groups;
  std::optional<std::int64_t> factor;
  std::optional<double> slope;
  std::optional<std::int64_t> from;  ///< an earlier module; -1: the sample
  std::optional<std::string> kind;
  std::optional<std::string> init;  ///< of weights: "he" or "zero"
  bool operator==(const LayerSpec&) const = default;
};

/// The [model] table without weights and seed.
struct ModelSpec {
  std::string preset = "partime-cnn";
  int layers = 10;
  int features = 16;
  int kernel = 5;
  int out_channels = 3;
  std::string norm = "none";        ///< partime-cnn: none | instance | group, before activations
  std::string activation = "relu";  ///< partime-cnn: relu | leaky-relu
  double slope = 0.01;              ///< leaky-relu: below 0
  std::vector<LayerSpec> layer;     ///< preset "layers" only
  std::string file;                 ///< preset "file" only: written by millrace.export
  std::vector<std::string> freeze;  ///< patterns of names of fixed parameters, as "layer1.*"
  bool channels_last = false;       ///< memory layout of samples and activations
};

/// A key of [[model.layer]]: its member of LayerSpec, and its range.
struct LayerField {
  std::string name;
  std::variant<std::optional<std::int64_t> LayerSpec::*, std::optional<double> LayerSpec::*,
               std::optional<std::string> LayerSpec::*>
      member;
  std::int64_t least = 0, most = 0;  ///< of an integer
};
const std::vector<LayerField>& layer_fields();

struct LayerKey {
  std::string name;
  std::string meaning;
  std::string fallback;  ///< the default; "": required
};

class Layer;

struct LayerType {
  std::string name;
  std::string summary;  ///< its function of [1,C,H,W]
  std::vector<LayerKey> keys;
  /// See make_layer(); keys are checked, and `joined` is set if the type has the key `from`.
  std::unique_ptr<Layer> (*make)(const LayerSpec& spec, ImageShape& shape,
                                 const ImageShape* joined);
};

const std::vector<LayerType>& layer_types();
/// Adds a type, before other threads use the table. Throws std::invalid_argument if the name is
/// taken, or for a key that `[[model.layer]]` does not have.
void add_layer_type(LayerType type);
/// Throws std::invalid_argument for an unknown name.
const LayerType& layer_type(const std::string& name);
std::vector<std::string> preset_names();

}  // namespace millrace::stages
