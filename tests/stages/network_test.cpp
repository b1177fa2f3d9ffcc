#include "stages/network.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "stages/parameters.h"
#include "stages/stage.h"
#include "tests/complaint.h"

namespace millrace::stages {
namespace {

std::string complaint_about(const ModelSpec& spec, ImageShape shape) {
  return complaint<std::invalid_argument>([&] { build_network(spec, shape); });
}

at::Tensor run(const ModelSpec& spec, ImageShape shape) {
  const auto network = build_network(spec, shape);
  Stage stage(network, {0, network->size(), true, true}, {}, at::kCPU);
  load_state(stage.parameters(), initial_state(*network, 0));
  const at::Tensor x = at::rand(shape.sizes());
  return stage.forward({x}, x).outputs[0];
}

TEST(Presets, KeepTheSizeOfTheirInput) {
  EXPECT_EQ(run({.layers = 3}, {3, 17, 23}).sizes(), at::IntArrayRef({1, 3, 17, 23}));
  EXPECT_EQ(run({.preset = "resnet18"}, {3, 64, 96}).sizes(), at::IntArrayRef({1, 3, 64, 96}));
  EXPECT_EQ(run({.preset = "resnet50"}, {3, 32, 32}).sizes(), at::IntArrayRef({1, 3, 32, 32}));
  EXPECT_EQ(complaint_about({.preset = "resnet34"}, {3, 64, 64}),
            "model.preset: unknown \"resnet34\"");
}

TEST(Presets, ResNetIsCutBetweenBlocks) {
  const auto network = build_network({.preset = "resnet18"}, {3, 64, 64});
  EXPECT_EQ(network->size(), 4 + 8 + 3);
  EXPECT_EQ(network->module(4).describe(), "basic-block 64->64");
  EXPECT_EQ(network->module(6).describe(), "basic-block 64->128 s2");
  const auto block = network->module(6).parameters();
  EXPECT_EQ(block[0].name, "conv1.weight");
  EXPECT_EQ(block.back().name, "downsample.1.bias");
}

/// A layer of `type` with only its required keys.
LayerSpec least(const std::string& type) {
  LayerSpec spec{type};
  const std::map<std::string, LayerValue> needed = {{"out", 8},    {"kernel", 3}, {"groups", 2},
                                                    {"factor", 2}, {"from", -1},  {"slope", 0.5}};
  for (const LayerKey& key : layer_type(type).keys) {
    if (key.required()) spec.keys[key.name] = needed.at(key.name);
  }
  return spec;
}

at::Tensor forward(const LayerSpec& spec, const at::Tensor& x,
                   const std::vector<at::Tensor>& parameters = {}) {
  ImageShape shape{x.size(1), x.size(2), x.size(3)};
  const ImageShape before = shape;
  const at::Tensor y = make_layer(spec, shape, &before)->forward(std::vector{x, x}, parameters);
  EXPECT_EQ(y.sizes(), at::IntArrayRef(shape.sizes())) << spec.type;
  return y;
}

TEST(Layers, EachTypeSaysWhatItIsAndGivesTheShapeItPromises) {
  for (const LayerType& type : layer_types()) {
    EXPECT_FALSE(type.summary.empty()) << type.name;
    for (const LayerKey& key : type.keys)
      EXPECT_FALSE(key.meaning.empty()) << type.name << key.name;
    const bool vector = type.name == "linear";
    ImageShape shape{vector ? 5 : 4, vector ? 1 : 6, vector ? 1 : 8};
    const at::Tensor x = at::rand(shape.sizes());
    const ImageShape before = shape;
    std::vector<at::Tensor> parameters;
    for (const auto& p : make_layer(least(type.name), shape, &before)->parameters())
      parameters.push_back(at::rand(p.shape));
    forward(least(type.name), x, parameters);
  }
}

TEST(Layers, UpsamplingIsNearestOrBilinear) {
  LayerSpec spec = least("upsample");
  const at::Tensor x = at::arange(2.0f).view({1, 1, 1, 2});
  EXPECT_TRUE(at::allclose(forward(spec, x)[0][0][0], at::tensor({0.0f, 0.0f, 1.0f, 1.0f})));
  spec.keys["kind"] = "bilinear";
  EXPECT_TRUE(at::allclose(forward(spec, x)[0][0][0], at::tensor({0.0f, 0.25f, 0.75f, 1.0f})));
  spec.keys["kind"] = "cubic";
  ImageShape shape{1, 1, 2};
  EXPECT_THROW(make_layer(spec, shape), std::invalid_argument);
}

TEST(PartimeCnn, HasANormBeforeEachActivationIfAsked) {
  ModelSpec spec{.layers = 2, .features = 12};
  spec.norm = "instance";
  spec.activation = "leaky-relu";
  const auto network = build_network(spec, {3, 16, 16});
  ASSERT_EQ(network->size(), 5);
  EXPECT_EQ(network->module(1).describe(), "instancenorm");
  EXPECT_EQ(network->module(2).describe(), "leaky-relu");
  spec.norm = "group";
  EXPECT_EQ(build_network(spec, {3, 16, 16})->module(1).describe(), "groupnorm 4");
}

TEST(Network, KnowsWhatACutCrosses) {
  ModelSpec spec{.preset = "layers"};
  spec.layer = {least("relu"), least("relu"), least("relu"), least("add"), least("relu")};
  spec.layer[3].keys["from"] = 0;
  spec.layer.push_back(least("add"));
  const auto network = build_network(spec, {3, 4, 4});
  EXPECT_EQ(network->crossing(0), (std::vector<int>{kSample}));
  EXPECT_EQ(network->crossing(1), (std::vector<int>{kSample, 0}));
  EXPECT_EQ(network->crossing(3), (std::vector<int>{kSample, 0, 2}));
  EXPECT_EQ(network->crossing(4), (std::vector<int>{kSample, 3}));
  EXPECT_EQ(network->crossing(6), (std::vector<int>{5}));
}

TEST(Layers, SayWhatIsWrong) {
  LayerSpec add = least("add"), relu = least("relu");
  add.keys["from"] = 0;
  relu.keys["groups"] = 2;
  const std::pair<std::vector<LayerSpec>, std::string> cases[] = {
      {{{"conv"}}, "model.layer[0] (conv): needs out"},
      {{{"conv", {{"out", 3}, {"kernel", 4}}}},
       "model.layer[0] (conv): kernel must be odd, so that padding keeps the size"},
      {{{"conv", {{"out", 4}, {"kernel", 3}}}}, "(4 channels at 8x8)"},
      {{{"conv", {{"out", 4}, {"kernel", 3}, {"slope", 0.1}}}},
       "model.layer[0] (conv): takes no slope (it takes out, kernel, stride, groups, init)"},
      {{relu}, "model.layer[0] (relu): takes no groups (it takes none)"},
      {{add}, "model.layer[0] (add): from must name an earlier module, or -1: the sample"},
      {{least("maxpool"), least("add")},
       "model.layer[1] (add): joins 4x4 with module -1's 8x8: sizes must be equal"},
      {{}, "needs at least one"}};
  for (const auto& [layers, what] : cases) {
    const std::string told = complaint_about({.preset = "layers", .layer = layers}, {3, 8, 8});
    EXPECT_NE(told.find(what), std::string::npos) << told;
  }
}

}  // namespace
}  // namespace millrace::stages
