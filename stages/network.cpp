#include "stages/network.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>

#include "stages/layers.h"
#include "stages/torchscript.h"

namespace millrace::stages {
namespace {

/// (layers-1) x {conv, relu}, conv, sigmoid: the network of PARTIME's experiments (Meloni et al.,
/// arXiv 2210.09147); with a norm before each activation if asked for.
std::vector<LayerSpec> partime_cnn(const ModelSpec& model) {
  std::vector<LayerSpec> list;
  for (int i = 0; i + 1 < model.layers; ++i) {
    list.push_back({"conv", {{"out", model.features}, {"kernel", model.kernel}}});
    if (model.norm == "instance") list.push_back({"instancenorm"});
    if (model.norm == "group")
      list.push_back({"groupnorm", {{"groups", std::gcd(model.features, 8)}}});
    list.push_back({model.activation});
    if (model.activation == "leaky-relu") list.back().keys["slope"] = model.slope;
  }
  list.push_back({"conv", {{"out", model.out_channels}, {"kernel", model.kernel}}});
  list.push_back({"sigmoid"});
  return list;
}

/// conv, relu, (layers-2) x residual, conv, scale: a network of changes. It starts at zero, and
/// each block passes on its whole gradient, however late. The scale is small because changes are:
/// adam moves every weight of the last convolution by about the rate, which at full scale would be
/// worse than no change for hundreds of frames.
std::vector<LayerSpec> residual_cnn(const ModelSpec& model) {
  std::vector<LayerSpec> list;
  const std::int64_t kernel = model.kernel;
  if (model.layers > 1) {
    list = {{"conv", {{"out", model.features}, {"kernel", kernel}, {"init", "he"}}}, {"relu"}};
  }
  for (int i = 0; i + 2 < model.layers; ++i) list.push_back({"residual", {{"kernel", kernel}}});
  list.push_back({"conv", {{"out", model.out_channels}, {"kernel", kernel}, {"init", "zero"}}});
  list.push_back({"multiply", {{"slope", 0.25}}});
  return list;
}

/// Two convolutions that halve the picture, and a number a class: as good on real footage with
/// labels as more features, and better than more layers, which lose small things.
std::vector<LayerSpec> classifier(const ModelSpec& model) {
  std::vector<LayerSpec> list;
  for (int i = 0; i < 2; ++i) {
    list.push_back({"conv", {{"out", 16}, {"kernel", 3}, {"stride", 2}}});
    list.push_back({"relu"});
  }
  list.push_back({"flatten"});
  list.push_back({"linear", {{"out", model.out_channels}}});
  return list;
}

/// ResNet's trunk, one module per block so that it can be cut between blocks, and a head that maps
/// each cell of the last map (stride 32) to a 32x32 patch of the picture.
std::vector<LayerSpec> resnet(const ModelSpec& model, const std::string& block,
                              const std::vector<int>& depths) {
  constexpr std::int64_t kStride = 32;
  std::vector<LayerSpec> list = {{"conv", {{"out", 64}, {"kernel", 7}, {"stride", 2}}},
                                 {"groupnorm", {{"groups", 32}}},
                                 {"relu"},
                                 {"maxpool"}};
  std::int64_t width = 64;
  for (std::size_t group = 0; group < depths.size(); ++group, width *= 2) {
    for (int i = 0; i < depths[group]; ++i)
      list.push_back({block, {{"out", width}, {"stride", group > 0 && i == 0 ? 2 : 1}}});
  }
  list.push_back({"conv", {{"out", model.out_channels * kStride * kStride}, {"kernel", 1}}});
  list.push_back({"pixel-shuffle", {{"factor", kStride}}});
  list.push_back({"sigmoid"});
  return list;
}

using Preset = std::vector<LayerSpec> (*)(const ModelSpec&);

const std::map<std::string, Preset>& presets() {
  static const std::map<std::string, Preset> table = {
      {"partime-cnn", partime_cnn},
      {"residual-cnn", residual_cnn},
      {"classifier", classifier},
      {"resnet18",
       [](const ModelSpec& m) {
         return resnet(m, "basic-block", {2, 2, 2, 2});
       }},
      {"resnet50",
       [](const ModelSpec& m) {
         return resnet(m, "bottleneck", {3, 4, 6, 3});
       }},
      {"layers", [](const ModelSpec& m) { return m.layer; }},
      {"file", [](const ModelSpec&) { return std::vector<LayerSpec>{}; }}};
  return table;
}

void require_gives(Gives gives, const ImageShape& input, const ImageShape& output) {
  if (gives == Gives::anything || (gives == Gives::picture && output == input)) return;
  if (gives == Gives::vector) {
    if (output.height == 1 && output.width == 1) return;
    throw std::invalid_argument(
        "the network must end in a vector, a number a class (flatten, linear), to tell labels");
  }
  if (gives == Gives::map && output.height == input.height && output.width == input.width) return;
  const auto text = [](const ImageShape& s) {
    return std::to_string(s.channels) + " channels at " + std::to_string(s.width) + "x" +
           std::to_string(s.height);
  };
  throw std::invalid_argument("the network's output (" + text(output) +
                              ") must have the shape of its target (" + text(input) + ")");
}

std::vector<LayerSpec> layers_of(const ModelSpec& spec) {
  const auto preset = presets().find(spec.preset);
  if (preset == presets().end())
    throw std::invalid_argument("model.preset: unknown \"" + spec.preset + "\"");
  return preset->second(spec);
}

std::shared_ptr<Network> make_network(const ModelSpec& spec, const ImageShape& input) {
  const std::vector<LayerSpec> list = layers_of(spec);
  if (list.empty())
    throw std::invalid_argument(
        "model.layer: preset \"layers\" needs at least one [[model.layer]]");
  ImageShape shape = input;
  std::vector<ImageShape> shapes = {input};
  std::vector<std::unique_ptr<Layer>> modules;
  std::vector<int> from;
  for (const LayerSpec& layer : list) {
    try {
      const auto named = layer.keys.find("from");
      const auto* const number =
          named == layer.keys.end() ? nullptr : std::get_if<std::int64_t>(&named->second);
      const std::int64_t source = number ? *number : kNone;
      const bool earlier = source >= kSample && source < std::int64_t(modules.size());
      modules.push_back(make_layer(layer, shape, earlier ? &shapes[source + 1] : nullptr));
      shapes.push_back(shape);
      from.push_back(int(source));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("model.layer[" + std::to_string(modules.size()) + "] (" +
                                  layer.type + "): " + error.what());
    }
  }
  return std::make_shared<Network>(std::move(modules), std::move(from), std::move(shapes),
                                   spec.channels_last);
}

}  // namespace

std::vector<int> Network::crossing(int place) const {
  std::set<int> sources = {place - 1};
  for (int index = place; index < size(); ++index) {
    if (from_[index] != kNone && from_[index] < place) sources.insert(from_[index]);
  }
  return {sources.begin(), sources.end()};
}

std::vector<ParameterSpec> Network::parameters(int begin, int end) const {
  std::vector<ParameterSpec> all;
  for (int index = begin; index < end; ++index) {
    for (ParameterSpec spec : modules_[index]->parameters()) {
      if (!modules_[index]->names_are_whole()) spec.name = std::to_string(index) + "." + spec.name;
      spec.fixed = spec.fixed || std::binary_search(frozen_.begin(), frozen_.end(), spec.name);
      all.push_back(std::move(spec));
    }
  }
  return all;
}

bool Network::learns_before(int end) const {
  return !std::ranges::all_of(parameters(0, end), &ParameterSpec::fixed);
}

void Network::freeze(const std::vector<std::string>& patterns) {
  const std::vector<ParameterSpec> all = parameters(0, size());
  for (const std::string& pattern : patterns) {
    const std::size_t before = frozen_.size();
    const auto matches = [&](const std::string& name) {
      return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    };
    for (const ParameterSpec& spec : all) {
      if (matches(spec.name) || std::ranges::any_of(spec.also, matches))
        frozen_.push_back(spec.name);
    }
    if (frozen_.size() > before || all.empty()) continue;
    std::string names;
    for (std::size_t i = 0; i < all.size() && i < 6; ++i) names += (i ? ", " : "") + all[i].name;
    throw std::invalid_argument("model.freeze: \"" + pattern +
                                "\" is no parameter's name; there are " + names +
                                (all.size() > 6 ? ", ..." : ""));
  }
  std::ranges::sort(frozen_);
}

void Network::predict_change(std::int64_t channels) {
  modules_.push_back(make_change(channels));
  from_.push_back(kSample);
  shapes_.push_back(ImageShape(shapes_.back()));
  predicts_change_ = true;
}

std::shared_ptr<const Network> build_network(const ModelSpec& spec, const ImageShape& frame,
                                             Gives gives, Forecast forecast) {
  const ImageShape input{frame.channels * forecast.context, frame.height, frame.width};
  const std::shared_ptr<Network> network = spec.preset == "file"
                                               ? read_network(spec.file, input, spec.channels_last)
                                               : make_network(spec, input);
  require_gives(forecast.change ? Gives::picture : gives, frame, network->output());
  if (forecast.change) network->predict_change(frame.channels);
  network->freeze(spec.freeze);
  return network;
}

bool ends_in_linear(const Network& network) {
  const Layer& last = network.module(network.size() - 1);
  const std::vector<ParameterSpec> own = last.parameters();
  const ImageShape& in = network.shape(network.size() - 2);
  const std::int64_t inputs = in.elements(), outputs = network.output().channels;
  if (own.empty() || own.size() > 2 || own[0].shape != std::vector<std::int64_t>{outputs, inputs})
    return false;
  if (own.size() == 2 && own[1].shape != std::vector<std::int64_t>{outputs}) return false;
  // A file's module may do more than its parameters show.
  const c10::NoGradGuard no_grad;
  const at::Tensor x = at::linspace(-1, 2, inputs).view({1, in.channels, in.height, in.width});
  const std::vector<at::Tensor> p = {at::linspace(-1, 1, outputs * inputs).view({outputs, inputs}),
                                     at::linspace(-2, 1, outputs)};
  const at::Tensor made = last.forward({&x, 1}, std::span(p).first(own.size())).flatten();
  const at::Tensor bias = own.size() == 2 ? p[1] : at::Tensor();
  return at::allclose(made, at::linear(x.flatten(1), p[0], bias).flatten(), 1e-3, 1e-3);
}

bool ends_in_sigmoid(const ModelSpec& spec) {
  if (spec.preset == "file") return file_ends_in_sigmoid(spec.file);
  const std::vector<LayerSpec> list = layers_of(spec);
  return !list.empty() && list.back().type == "sigmoid";
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, preset] : presets()) names.push_back(name);
  return names;
}

}  // namespace millrace::stages
