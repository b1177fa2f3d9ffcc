// The [model] table of a config.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

namespace millrace::stages {

/// Shape of a sample; sizes are 0 if not known before the source is opened.
struct ImageShape {
  std::int64_t channels = 3;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t elements() const { return channels * height * width; }
  std::vector<std::int64_t> sizes() const { return {1, channels, height, width}; }  ///< as a tensor
  bool operator==(const ImageShape&) const = default;
};

/// The required output: the sample's shape, a number per class, numbers for each of the sample's
/// pixels, or the shape of any target.
enum class Gives { picture, vector, map, anything };

/// How samples hold the stream's past, and what is predicted.
struct Forecast {
  int context = 1;      ///< frames in a sample; the channels of the latest come last
  bool change = false;  ///< the network outputs the change to the latest frame
};

using LayerValue = std::variant<std::int64_t, double, std::string>;

/// One `[[model.layer]]` table: a type and the keys that are set.
struct LayerSpec {
  std::string type;  ///< see layer_types()
  std::map<std::string, LayerValue> keys = {};
  bool operator==(const LayerSpec&) const = default;

  // The value of a key of its type, if the spec is complete().
  std::int64_t whole(const std::string& key) const { return std::get<std::int64_t>(keys.at(key)); }
  double number(const std::string& key) const { return std::get<double>(keys.at(key)); }
  const std::string& text(const std::string& key) const {
    return std::get<std::string>(keys.at(key));
  }
};

/// The network, without weights and seed.
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

/// A key of a layer type.
struct LayerKey {
  struct Whole {
    std::int64_t least = 1, most = 65536;
  };
  struct Number {};
  using Names = std::vector<std::string>;

  std::string name;
  std::string meaning;
  std::variant<Whole, Number, Names> takes;
  std::optional<LayerValue> fallback = {};  ///< the default; none: the key is required

  bool required() const { return !fallback; }
  /// For people.
  std::string fallback_text() const {
    std::ostringstream text;
    if (required()) return "(must be given)";
    std::visit([&](const auto& value) { text << value; }, *fallback);
    return text.str();
  }
};

class Layer;

/// A registered layer type.
struct LayerType {
  std::string name;
  std::string summary;  ///< what it computes from [1,C,H,W]
  std::vector<LayerKey> keys;
  /// See make_layer(); the spec is complete, and `joined` is set if the type has the key `from`.
  std::unique_ptr<Layer> (*make)(const LayerSpec& spec, ImageShape& shape,
                                 const ImageShape* joined);
};

/// Sorted by name.
const std::vector<LayerType>& layer_types();
/// Adds a type before other threads use the table. Throws std::invalid_argument for a taken name.
void add_layer_type(LayerType type);
/// Throws std::invalid_argument for an unknown name.
const LayerType& layer_type(const std::string& name);
/// `spec` with the defaults of its type. Throws std::invalid_argument for an unknown type, a key
/// that the type does not have, a value out of range or a missing required key.
LayerSpec complete(LayerSpec spec);
/// "out, kernel, stride"; "none".
std::string keys_text(const LayerType& type);
/// Every value of ModelSpec::preset.
std::vector<std::string> preset_names();

}  // namespace millrace::stages
