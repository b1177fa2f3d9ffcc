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
  return stage.forward(at::rand({1, shape.channels, shape.height, shape.width})).output;
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

TEST(Layers, EachTypeGivesTheShapeItPromises) {
  for (const std::string& type : layer_types()) {
    LayerSpec spec{.type = type};
    spec.out = 8;
    spec.kernel = type == "conv" ? 3 : 2;
    spec.groups = 2;
    spec.factor = 2;
    ImageShape shape{type == "linear" ? 5 : 4, type == "linear" ? 1 : 6, type == "linear" ? 1 : 8};
    const at::Tensor x = type == "linear" ? at::rand({1, 5}) : at::rand({1, 4, 6, 8});
    const auto layer = make_layer(spec, shape);
    std::vector<at::Tensor> parameters;
    for (const auto& p : layer->parameters()) parameters.push_back(at::rand(p.shape));
    const at::Tensor y = layer->forward(x, parameters);
    EXPECT_EQ(y.size(1), shape.channels) << type;
    if (y.dim() == 4) {
      EXPECT_EQ(y.size(2), shape.height) << type;
      EXPECT_EQ(y.size(3), shape.width) << type;
    }
  }
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
