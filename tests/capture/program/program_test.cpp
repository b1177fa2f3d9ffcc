// A step program computes what LibTorch computes, and nothing else.
#include "capture/program/program.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "capture/program/program_stage.h"
#include "stages/stage.h"
#include "tests/capture/program/kernels_reference.h"

namespace millrace::program {
namespace {

const stages::ImageShape kShape{3, 12, 16};

stages::Stage make_stage(const stages::ModelSpec& model, bool channels_last,
                         const stages::OptimizerSpec& optimizer = {.lr = 0.1},
                         const std::string& correction = "none") {
  const auto network = stages::build_network(model, kShape);
  stages::Stage stage(network, {0, network->size(), true, true}, optimizer, at::kCPU,
                      {.correction = {.kind = correction},
                       .delay = {.frames = 3, .updates = 3, .on_later_sample = true},
                       .channels_last = channels_last});
  stage.restore(stages::initial_state(*network, 7));
  return stage;
}

stages::ModelSpec partime_cnn(int features, int kernel, const std::string& norm = "none") {
  return {.layers = 4, .features = features, .kernel = kernel, .norm = norm};
}

/// One stage's programs at one slot.
class Step {
 public:
  explicit Step(stages::Stage stage, int backwards = 1)
      : backwards_(backwards), programs_(std::move(stage), 1, backwards) {
    const at::Tensor any = at::zeros({1, 3, 12, 16});
    programs_.forward({any}, any, 0);  // records all
  }
  float train(const at::Tensor& sample) {
    ProgramStage::Activations kept = programs_.forward({sample}, sample, 0);
    for (int i = 0; i < backwards_; ++i) programs_.backward(kept, {}, {.first = i == 0});
    programs_.update({.count = backwards_}, 1.0);
    return kept.loss.item<float>();
  }
  /// Names of all operations, in order; or of those that have no kernel.
  std::vector<std::string> names(bool left_to_libtorch = false) {
    std::vector<std::string> all;
    for (const capture::OperationInfo& info : programs_.operations(0)) {
      if (!left_to_libtorch || info.kernel == capture::kLibTorch) all.push_back(info.name);
    }
    return all;
  }
  const stages::Stage& stage() const { return programs_.stage(); }

 private:
  const int backwards_;
  ProgramStage programs_;
};

float train_eagerly(stages::Stage& stage, const at::Tensor& sample, int backwards = 1) {
  stages::Activations kept = stage.forward({sample}, sample);
  const float loss = kept.loss.item<float>();
  stage.backward(kept, {});
  for (int i = 1; i < backwards; ++i) {
    kept = stage.forward({sample}, sample);
    stage.backward(kept, {}, {.first = false});
  }
  stage.update({.count = backwards}, 1.0);
  return loss;
}

at::Tensor sample(std::int64_t n) {
  return at::rand({1, 3, 12, 16}, at::detail::createCPUGenerator(std::uint64_t(1000 + n)));
}

/// Largest difference, as a part of the largest number.
double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() / b.abs().max().item<double>();
}

struct Case {
  int features, kernel;
  std::string norm = "none";
};
class ProgramTest : public testing::TestWithParam<Case> {};

TEST_P(ProgramTest, GradientsAreEagersWithinRounding) {
  const auto& [features, kernel, norm] = GetParam();
  // After one update the momentum is the gradient.
  const stages::OptimizerSpec spec{.lr = 0.1, .momentum = 0.9};
  Step step(make_stage(partime_cnn(features, kernel, norm), true, spec));
  stages::Stage eager = make_stage(partime_cnn(features, kernel, norm), false, spec);
  EXPECT_NEAR(step.train(sample(0)), train_eagerly(eager, sample(0)), 1e-6);
  const stages::StateDict mine = step.stage().checkpoint(), theirs = eager.checkpoint();
  double largest = 0;
  for (const auto& [name, value] : theirs)
    largest = std::max(largest, value.abs().max().item<double>());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const auto& [name, value] = mine[i];
    // An instance norm takes away what a bias before it adds: its gradient is nothing but rounding.
    if (norm == "instance" && name.starts_with("optimizer.momentum") && name.ends_with("bias") &&
        theirs[i].second.abs().max().item<double>() < 1e-6 * largest) {
      EXPECT_LT(value.abs().max().item<double>(), 1e-6 * largest) << name;
    } else {
      EXPECT_LT(difference(value, theirs[i].second), 1e-5) << name;
    }
  }
  EXPECT_EQ(step.names(true), std::vector<std::string>());
}

TEST_P(ProgramTest, DriftsFromEagerByRoundingOnlyOver500Frames) {
  const auto& [features, kernel, norm] = GetParam();
  Step step(make_stage(partime_cnn(features, kernel, norm), true));
  stages::Stage eager = make_stage(partime_cnn(features, kernel, norm), false);
  float mine = 0, theirs = 0;
  for (int n = 0; n < 500; ++n) {
    mine = step.train(sample(n));
    theirs = train_eagerly(eager, sample(n));
  }
  EXPECT_NEAR(mine / theirs, 1, 1e-3);
  EXPECT_LT(difference(step.stage().parameters().flat(), eager.parameters().flat()), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Networks, ProgramTest,
                         testing::Values(Case{8, 3}, Case{16, 5}, Case{20, 3},
                                         Case{20, 3, "instance"}, Case{32, 3, "group"}),
                         [](const auto& info) {
                           return std::to_string(info.param.features) + "_features_kernel_" +
                                  std::to_string(info.param.kernel) + "_norm_" + info.param.norm;
                         });

TEST(Program, MergesNeighbours) {
  Step step(make_stage(partime_cnn(16, 5), true));
  const std::vector<std::string> names = step.names();
  const auto count = [&](const std::string& part) {
    return std::count_if(names.begin(), names.end(), [&](const std::string& name) {
      return name.find(part) != std::string::npos;
    });
  };
  EXPECT_EQ(count("forward"), 4);
  EXPECT_EQ(count(" relu"), 3) << "with the convolution before";
  EXPECT_EQ(count(" sigmoid"), 1);
  EXPECT_EQ(count("masked"), 3) << "nobody wants the sample's gradient";
  EXPECT_EQ(count("weight-gradient"), 4);
  // The sample's layout, 4 + 1 forward, 1 + 3 + 4 backward, the update.
  EXPECT_EQ(names.size(), 15u) << testing::PrintToString(names);
}

TEST(Program, AddsUpGradientsWhereTheyAreMade) {
  Step step(make_stage(partime_cnn(16, 5), true), 2);
  stages::Stage eager = make_stage(partime_cnn(16, 5), false);
  const at::Tensor before = eager.parameters().flat().clone();
  step.train(sample(0));
  train_eagerly(eager, sample(0), 2);
  EXPECT_LT(
      difference(step.stage().parameters().flat() - before, eager.parameters().flat() - before),
      1e-4);
}

/// In one operation, and within rounding of what LibTorch's operators make of it.
TEST(Program, EveryOptimizerWithEveryCorrection) {
  for (const std::string& kind : stages::optimizer_names()) {
    for (const double momentum : {0.0, 0.9}) {
      if (momentum != 0 && kind != "sgd" && kind != "rmsprop") continue;
      for (const std::string& correction : stages::correction_names()) {
        if (correction == "spike-compensation" && (kind != "sgd" || momentum == 0)) continue;
        SCOPED_TRACE(kind + ", momentum " + std::to_string(momentum) + ", " + correction);
        const stages::OptimizerSpec spec{
            .kind = kind, .lr = 1e-3, .momentum = momentum, .weight_decay = 0.01};
        Step step(make_stage(partime_cnn(8, 3), true, spec, correction));
        stages::Stage eager = make_stage(partime_cnn(8, 3), false, spec, correction);
        const at::Tensor before = eager.parameters().flat().clone();
        for (int n = 0; n < 12; ++n)
          EXPECT_NEAR(step.train(sample(n)), train_eagerly(eager, sample(n)), 1e-5);
        const at::Tensor change = eager.parameters().flat() - before;
        EXPECT_LT(difference(step.stage().parameters().flat() - before, change), 2e-3);
        EXPECT_EQ(step.names(true), std::vector<std::string>());
        const std::vector<std::string> names = step.names();
        EXPECT_EQ(std::count_if(names.begin(), names.end(),
                                [](const auto& name) { return name.starts_with("update by"); }),
                  1);
      }
    }
  }
}

/// Whatever there is no kernel for is the operator that it was: attention's products.
TEST(Program, RunsWhatItDoesNotKnowAsLibTorch) {
  stages::ModelSpec model;
  model.preset = "layers";
  model.layer = {{.type = "conv", .out = 8, .kernel = 3},
                 {.type = "groupnorm", .groups = 2},
                 {.type = "gelu"},
                 {.type = "maxpool"},
                 {.type = "upsample"},
                 {.type = "conv", .out = 3, .kernel = 3},
                 {.type = "tanh"}};
  for (const bool attends : {false, true}) {
    if (attends) model.layer.insert(model.layer.begin() + 4, {.type = "attention", .groups = 2});
    Step step(make_stage(model, true));
    stages::Stage eager = make_stage(model, false);
    for (int n = 0; n < 20; ++n)
      EXPECT_NEAR(step.train(sample(n)), train_eagerly(eager, sample(n)), 1e-4);
    EXPECT_EQ(step.names(true).empty(), !attends);
  }
}

/// A program of the body leaves what LibTorch does, by kernels and copies alone: on each
/// instruction set, shared by three threads, into memory full of NaN.
void expect_kernels(const std::function<std::vector<at::Tensor>()>& body) {
  kernels::each_instruction_set([&] {
    std::vector<at::Tensor> found;
    Arena arena;
    kernels::Team team(3);
    Program program([&] { found = body(); }, arena, {.team = &team});
    for (at::Tensor& made : found) made.fill_(NAN);
    program.run();
    const std::vector<at::Tensor> expected = body();
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_LT(difference(found[i], expected[i]), 2e-6) << i << " " << kernels::instruction_set();
    for (const capture::OperationInfo& operation : program.operations())
      EXPECT_TRUE(operation.kernel != capture::kLibTorch || operation.name == "copy")
          << operation.name;
  });
}

/// Of any window, in groups, transposed.
TEST(Program, ConvolutionsOfAllKinds) {
  struct {
    std::vector<std::int64_t> weight, stride, padding, dilation;
    bool transposed;
    std::int64_t groups;
  } const kinds[] = {{{8, 6, 2, 2}, {2, 2}, {0, 0}, {1, 1}, false, 1},
                     {{8, 3, 3, 5}, {1, 2}, {1, 0}, {2, 1}, false, 2},
                     {{6, 1, 3, 3}, {2, 2}, {1, 1}, {1, 1}, false, 6},
                     {{6, 5, 2, 2}, {2, 2}, {0, 0}, {1, 1}, true, 1},
                     {{6, 4, 4, 4}, {2, 2}, {1, 1}, {1, 1}, true, 3},
                     {{6, 5, 3, 3}, {1, 1}, {1, 1}, {1, 1}, true, 1}};
  const auto generator = at::detail::createCPUGenerator(3);
  const auto images = at::TensorOptions().memory_format(at::MemoryFormat::ChannelsLast);
  for (const auto& k : kinds) {
    SCOPED_TRACE(testing::PrintToString(k.weight) + (k.transposed ? " transposed" : ""));
    const at::Tensor x = at::empty({1, 6, 9, 8}, images).uniform_(-1, 1, generator);
    const at::Tensor w = at::rand(k.weight, generator);
    const at::Tensor b = at::rand({k.transposed ? k.weight[1] * k.groups : k.weight[0]}, generator);
    const auto forward = [&] {
      return at::convolution(x, w, b, k.stride, k.padding, k.dilation, k.transposed, {0, 0},
                             k.groups);
    };
    const at::Tensor dy = at::empty(forward().sizes(), images).uniform_(-1, 1, generator);
    expect_kernels([&] {
      const at::Tensor y = forward();
      const auto [dx, dw, db] =
          at::convolution_backward(dy, x, w, b.sizes(), k.stride, k.padding, k.dilation,
                                   k.transposed, {0, 0}, k.groups, {true, true, true});
      return std::vector<at::Tensor>{y, dx, dw, db};
    });
  }
}

TEST(Program, ConcatenationAndItsPartsAreCopiesOfChannels) {
  const auto images = at::TensorOptions().memory_format(at::MemoryFormat::ChannelsLast);
  const auto generator = at::detail::createCPUGenerator(3);
  const auto picture = [&](std::int64_t channels) {
    return at::empty({1, channels, 5, 6}, images).uniform_(-1, 1, generator);
  };
  const at::Tensor a = picture(3), b = picture(20), w = at::rand({7, 8, 1, 1});
  expect_kernels([&] {
    const at::Tensor all = at::cat({a, b}, 1);
    return std::vector<at::Tensor>{all, at::convolution(all.narrow(1, 10, 8), w, {}, {1, 1}, {0, 0},
                                                        {1, 1}, false, {0, 0}, 1)};
  });
}

/// Functions of elements, of operands that are spread over pixels, channels, rows or all.
TEST(Program, FunctionsOfElementsAreSpread) {
  const auto generator = at::detail::createCPUGenerator(3);
  const auto made = [&](at::IntArrayRef sizes) { return at::rand(sizes, generator) - 0.5; };
  const at::Tensor x = made({1, 20, 5, 7}).contiguous(at::MemoryFormat::ChannelsLast),
                   planes = made({1, 20, 5, 7}), gate = made({1, 20, 1, 1}),
                   scale = made({20, 1, 1}), pixels = made({1, 1, 5, 7}), rows = made({9, 33}),
                   columns = made({33, 9}), bias = made({33}), number = made({});
  expect_kernels([&] {
    at::Tensor y = at::silu(x) * gate + gate / 3;
    y = at::gelu(y * scale, "none").mul_(pixels) - at::hardswish(planes);
    y = at::leaky_relu(y, 0.1) + x.mean({2, 3}, true) + (gate.expand({1, 20, 5, 7}) / 35);
    const at::Tensor z = at::elu((rows + bias) * number, 0.5, 1.5, 2).add_(columns.t());
    return std::vector<at::Tensor>{y, y.sum({0, 2, 3}), z, at::tanh(z.view({1, 9, 33}).mean(1)),
                                   at::hardtanh(y.narrow(1, 3, 11), -0.1, 0.2)};
  });
}

TEST(Program, PoolsAndTheirGradients) {
  const auto generator = at::detail::createCPUGenerator(3);
  for (const std::int64_t channels : {3, 20}) {
    const at::Tensor x = (at::randint(0, 9, {1, channels, 12, 9}, generator) / 4)  // with ties
                             .contiguous(at::MemoryFormat::ChannelsLast);
    const auto g = [&](at::IntArrayRef sides) {
      return at::rand({1, channels, sides[0], sides[1]}, generator) - 0.5;
    };
    const at::Tensor dy = g({6, 5}), planes = g({12, 9}), dilated = g({6, 2}), wide = g({24, 36}),
                     small = g({3, 3});
    expect_kernels([&] {
      using Sides = std::vector<std::int64_t>;
      const auto largest = [&](const at::Tensor& of, Sides k, Sides s, Sides p, Sides d,
                               bool ceil) {
        return at::max_pool2d_with_indices(of, k, s, p, d, ceil);
      };
      const auto [y, places] = largest(x, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false);
      const auto [u, others] = largest(x, {2, 4}, {}, {0, 1}, {2, 2}, true);
      return std::vector<at::Tensor>{
          y,
          u,
          at::max_pool2d_with_indices_backward(dy, x, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false,
                                               places),
          at::max_pool2d_with_indices_backward(dilated, x, {2, 4}, {}, {0, 1}, {2, 2}, true,
                                               others),
          at::avg_pool2d(planes, {3, 3}, {2, 2}, {1, 1}, false, false),
          at::avg_pool2d(x, {4, 3}, {4, 3}, {0, 0}, false, true, 5),
          at::avg_pool2d_backward(dy, x, {3, 3}, {2, 2}, {1, 1}, false, true, {}),
          at::_adaptive_avg_pool2d(x, {3, 3}),
          at::_adaptive_avg_pool2d_backward(small, x),
          at::upsample_nearest2d(x, {24, 36}),
          at::upsample_nearest2d_backward(wide, {24, 36}, {1, channels, 12, 9})};
    });
  }
}

TEST(Program, LayerNormAndSoftmaxOfRows) {
  const auto generator = at::detail::createCPUGenerator(3);
  for (const std::int64_t row : {5, 50}) {
    const at::Tensor x = at::rand({2, 7, row}, generator) * 3,
                     dy = at::rand({2, 7, row}, generator), turned = at::rand({row, 7}, generator),
                     w = at::rand({row}, generator), b = at::rand({row}, generator);
    expect_kernels([&] {
      const auto [y, mean, rstd] = at::native_layer_norm(x, {row}, w, b, 1e-5);
      const auto [dx, dw, db] =
          at::native_layer_norm_backward(dy, x, {row}, mean, rstd, w, b, {true, true, true});
      const auto [z, means, rstds] = at::native_layer_norm(x, {7, row}, {}, {}, 1e-5);
      const at::Tensor s = at::_softmax(x, -1, false), l = at::_log_softmax(turned.t(), 1, false);
      return std::vector<at::Tensor>{y,
                                     mean,
                                     rstd,
                                     dx,
                                     dw,
                                     db,
                                     z,
                                     s,
                                     l,
                                     at::_softmax_backward_data(dy, s, 2, at::kFloat),
                                     at::_log_softmax_backward_data(turned.t(), l, 1, at::kFloat)};
    });
  }
}

/// A linear layer is a convolution of kernel 1, whether of one row or of several.
TEST(Program, LinearLayersAreConvolutions) {
  const auto generator = at::detail::createCPUGenerator(3);
  for (const std::int64_t rows : {1, 7}) {
    SCOPED_TRACE(std::to_string(rows) + " rows");
    const at::Tensor x = at::rand({rows, 50}, generator), w = at::rand({20, 50}, generator),
                     b = at::rand({20}, generator), dy = at::rand({rows, 20}, generator);
    expect_kernels([&] {
      return std::vector<at::Tensor>{at::addmm(b, x, w.t()), dy.mm(w), dy.t().mm(x),
                                     dy.sum(0, true), w.t().mm(dy.t())};
    });
  }
}

/// They would take a hundred times as long, whoever of a team has them.
TEST(Program, TakesNumbersThatHaveFadedAwayForZeros) {
  kernels::Team two(2);
  for (kernels::Team* team : {static_cast<kernels::Team*>(nullptr), &two}) {
    Arena arena;
    const at::Tensor x = at::full({4096}, 1e-39);
    at::Tensor sum;
    Program program([&] { sum = x + x; }, arena, {.team = team});
    program.run();
    const float* made = sum.const_data_ptr<float>();
    EXPECT_EQ(std::count(made, made + 4096, 0.0f), 4096);
    volatile float mine = 1e-39f;
    EXPECT_GT(mine * 2, 0.0f) << "only while it runs";
  }
}

TEST(Program, RefusesWhatAsksTheHost) {
  Arena arena;
  const at::Tensor x = at::ones({});
  EXPECT_THROW(Program([&] { (void)(x + 1).item<float>(); }, arena), std::runtime_error);
  // And records again after that.
  at::Tensor sum;
  Program program([&] { sum = x + 1; }, arena);
  x.fill_(4);
  program.run();
  EXPECT_EQ(sum.item<float>(), 5);
}

TEST(ArenaPlan, ValuesThatLiveAtOnceLieApart) {
  const std::vector<Lifetime> values = {
      {0, 2, 100}, {1, 3, 64}, {3, 5, 1000}, {4, 4, 8}, {0, 5, 1}};
  const ArenaPlan plan = plan_arena(values);
  std::size_t all = 0;
  for (std::size_t a = 0; a < values.size(); ++a) {
    all += values[a].bytes;
    EXPECT_EQ(plan.offsets[a] % 64, 0u);
    EXPECT_LE(plan.offsets[a] + values[a].bytes, plan.bytes);
    for (std::size_t b = 0; b < a; ++b) {
      if (values[a].first > values[b].last || values[b].first > values[a].last) continue;
      EXPECT_TRUE(plan.offsets[a] + values[a].bytes <= plan.offsets[b] ||
                  plan.offsets[b] + values[b].bytes <= plan.offsets[a]);
    }
  }
  EXPECT_LT(plan.bytes, all + 64 * values.size()) << "memory is used again";
}

}  // namespace
}  // namespace millrace::program
