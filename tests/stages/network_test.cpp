#include "stages/network.h"

#include <ATen/ATen.h>  // samples
#include <gtest/gtest.h>

#include <stdexcept>  // std::invalid_argument

#include "stages/parameters.h"
#include "stages/stage.h"

namespace millrace::stages {
namespace {

std::string complaint(const ModelSpec& spec, ImageShape shape) {
  try {
    build_network(spec, shape);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

at::Tensor run(const ModelSpec& spec, ImageShape shape) {
  const auto network = build_network(spec, shape);
  Stage stage(network, {0, network->size(), true, true}, {}, at::kCPU);
  load_state(stage.parameters(), initial_state(*network, 0));
  const at::Tensor x = at::rand({1, shape.channels, shape.height, shape.width});
  return stage.forward({x}, x).outputs[0];
}

TEST(PartimeCnn, HasTheContractsModulesAndNames) {
  ModelSpec spec;
  const auto network = build_network(spec, {3, 16, 16});
  EXPECT_EQ(network->size(), 20);
  EXPECT_EQ(network->module(0).describe(), "conv 3->16 k5");
  EXPECT_EQ(network->module(1).describe(), "relu");
  EXPECT_EQ(network->module(18).describe(), "conv 16->3 k5");
  EXPECT_EQ(network->module(19).describe(), "sigmoid");
  const auto parameters = network->parameters(2, 5);
  ASSERT_EQ(parameters.size(), 4u);
  EXPECT_EQ(parameters[0].name, "2.weight");
  EXPECT_EQ(parameters[3].name, "4.bias");
  EXPECT_EQ(parameters[0].shape, (std::vector<std::int64_t>{16, 16, 5, 5}));
}

TEST(Presets, KeepTheSizeOfTheirInput) {
  ModelSpec spec;
  spec.layers = 3;
  EXPECT_EQ(run(spec, {3, 17, 23}).sizes(), at::IntArrayRef({1, 3, 17, 23}));
  spec.preset = "resnet18";
  EXPECT_EQ(run(spec, {3, 64, 96}).sizes(), at::IntArrayRef({1, 3, 64, 96}));
  spec.preset = "resnet50";
  EXPECT_EQ(run(spec, {3, 32, 32}).sizes(), at::IntArrayRef({1, 3, 32, 32}));
}

TEST(Presets, ResNetIsCutBetweenBlocks) {
  ModelSpec spec;
  spec.preset = "resnet18";
  const auto network = build_network(spec, {3, 64, 64});
  EXPECT_EQ(network->size(), 4 + 8 + 3);
  EXPECT_EQ(network->module(4).describe(), "basic-block 64->64");
  EXPECT_EQ(network->module(6).describe(), "basic-block 64->128 s2");
  const auto block = network->module(6).parameters();
  EXPECT_EQ(block[0].name, "conv1.weight");
  EXPECT_EQ(block.back().name, "downsample.1.bias");
}

TEST(Presets, RefuseASizeTheyDoNotGiveBack) {
  ModelSpec spec;
  spec.preset = "resnet18";
  EXPECT_NE(complaint(spec, {3, 48, 64}).find("must have the shape of its target"),
            std::string::npos);
  spec.preset = "resnet34";
  EXPECT_EQ(complaint(spec, {3, 64, 64}), "model.preset: unknown \"resnet34\"");
}

/// The least that a layer of `type` needs said.
LayerSpec least(const std::string& type) {
  LayerSpec spec{.type = type};
  if (type == "conv" || type == "linear" || type == "basic-block" || type == "bottleneck")
    spec.out = 8;
  if (type == "conv") spec.kernel = 3;
  if (type == "groupnorm") spec.groups = 2;
  if (type == "pixel-shuffle") spec.factor = 2;
  if (type == "add" || type == "concat") spec.from = -1;
  return spec;
}

TEST(Layers, EachTypeGivesTheShapeItPromises) {
  for (const std::string& type : layer_types()) {
    const bool vector = type == "linear";
    ImageShape shape{vector ? 5 : 4, vector ? 1 : 6, vector ? 1 : 8};
    const ImageShape before = shape;
    const at::Tensor x = at::rand({1, shape.channels, shape.height, shape.width});
    const auto layer = make_layer(least(type), shape, &before);
    std::vector<at::Tensor> parameters;
    for (const auto& p : layer->parameters()) parameters.push_back(at::rand(p.shape));
    const at::Tensor y = layer->forward(std::vector{x, x}, parameters);
    EXPECT_EQ(y.sizes(), at::IntArrayRef({1, shape.channels, shape.height, shape.width})) << type;
  }
}

TEST(Network, KnowsWhatACutCrosses) {
  ModelSpec spec{.preset = "layers"};
  spec.layer = {least("relu"), least("relu"), least("relu"), least("add"), least("relu")};
  spec.layer[3].from = 0;
  spec.layer.push_back(least("add"));
  const auto network = build_network(spec, {3, 4, 4});
  EXPECT_EQ(network->crossing(0), (std::vector<int>{kSample}));
  EXPECT_EQ(network->crossing(1), (std::vector<int>{kSample, 0}));
  EXPECT_EQ(network->crossing(3), (std::vector<int>{kSample, 0, 2}));
  EXPECT_EQ(network->crossing(4), (std::vector<int>{kSample, 3}));
  EXPECT_EQ(network->crossing(6), (std::vector<int>{5}));
}

TEST(Layers, SayWhatIsWrong) {
  ModelSpec spec{.preset = "layers"};
  spec.layer = {{.type = "conv"}};
  EXPECT_EQ(complaint(spec, {3, 8, 8}), "model.layer[0] (conv): needs kernel");
  spec.layer[0].kernel = 4;
  spec.layer[0].out = 3;
  EXPECT_EQ(complaint(spec, {3, 8, 8}),
            "model.layer[0] (conv): kernel must be odd, so that padding keeps the size");
  spec.layer[0].kernel = 3;
  spec.layer[0].out = 4;
  EXPECT_NE(complaint(spec, {3, 8, 8}).find("(4 channels at 8x8)"), std::string::npos);
  spec.layer[0].slope = 0.1;
  EXPECT_EQ(complaint(spec, {3, 8, 8}),
            "model.layer[0] (conv): takes no slope (it takes out, kernel, stride)");
  spec.layer = {least("add")};
  spec.layer[0].from = 0;
  EXPECT_EQ(complaint(spec, {3, 8, 8}),
            "model.layer[0] (add): from must name an earlier module, or -1: the sample");
  spec.layer = {least("maxpool"), least("add")};
  EXPECT_EQ(complaint(spec, {3, 8, 8}),
            "model.layer[1] (add): joins 4x4 with module -1's 8x8: sizes must be equal");
  spec.layer.clear();
  EXPECT_NE(complaint(spec, {3, 8, 8}), "");
}

TEST(InitialState, DependsOnTheSeedAlone) {
  const auto network = build_network({}, {3, 8, 8});
  const StateDict a = initial_state(*network, 5), b = initial_state(*network, 5),
                  c = initial_state(*network, 6);
  EXPECT_TRUE(at::equal(a[2].second, b[2].second));
  EXPECT_FALSE(at::equal(a[2].second, c[2].second));
}

}  // namespace
}  // namespace millrace::stages
