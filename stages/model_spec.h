// What a network is, in words: the [model] table of a config.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace millrace::stages {

/// Channels and size of a sample; 0 for a size that is not known before the source is opened.
struct ImageShape {
  std::int64_t channels = 3;
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool operator==(const ImageShape&) const = default;
};

/// What a network's output is compared with: of the sample's shape, a number a class, numbers for
/// each of the sample's pixels, or whatever the target is.
enum class Gives { picture, vector, map, anything };

/// How samples hold a stream's past, and what a prediction is.
struct Forecast {
  int context = 1;      ///< frames in a sample, the latest one's channels last
  bool change = false;  ///< the network gives the change to the latest frame
};

/// One `[[model.layer]]` table. A key that the layer's type does not take stays empty.
struct LayerSpec {
  std::string type;  ///< see layer_types(), which says what each type takes
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
  std::string file;                 ///< preset "file" only: what millrace.export wrote
  std::vector<std::string> freeze;  ///< patterns of names, as "layer1.*", of fixed parameters
  bool channels_last = false;       ///< memory layout of samples and activations
};

/// Where LayerSpec keeps a key of [[model.layer]], and what the key may be set to.
struct LayerField {
  std::string name;
  std::variant<std::optional<std::int64_t> LayerSpec::*, std::optional<double> LayerSpec::*,
               std::optional<std::string> LayerSpec::*>
      member;
  std::int64_t least = 0, most = 0;  ///< of a whole number
};
/// All but `type`.
const std::vector<LayerField>& layer_fields();

/// A key that a type of layer takes.
struct LayerKey {
  std::string name;
  std::string meaning;
  std::string fallback;  ///< what holds where it is left out; "": it must be given
};

class Layer;

/// A type of layer: an entry of the table beside its code.
struct LayerType {
  std::string name;
  std::string summary;  ///< what it computes of [1,C,H,W]
  std::vector<LayerKey> keys;
  /// As make_layer(); its keys are checked, and `joined` is there if it takes `from`.
  std::unique_ptr<Layer> (*make)(const LayerSpec& spec, ImageShape& shape,
                                 const ImageShape* joined);
};

/// Every value LayerSpec::type can take, in the order of names.
const std::vector<LayerType>& layer_types();
/// Adds one, before any thread but the caller's uses the table. Throws std::invalid_argument if the
/// name is taken, or for a key that no `[[model.layer]]` can have.
void add_layer_type(LayerType type);
/// Throws std::invalid_argument for a name that is not in the table.
const LayerType& layer_type(const std::string& name);
/// Every value ModelSpec::preset can take.
const std::vector<std::string>& preset_names();

}  // namespace millrace::stages
