// A step program computes what LibTorch computes, and nothing else.
#include "capture/program/program.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "capture/program/lowering.h"
#include "stages/stage.h"
#include "tests/capture/program/kernels_reference.h"
#include "tests/capture/program/operators.h"
#include "tests/repetitions.h"

namespace millrace::program {
namespace {

const stages::ImageShape kShape{3, 12, 16};

/// A stage by programs, and as it is.
struct Pair {
  explicit Pair(const stages::ModelSpec& model)
      : programs(stage(model, true)), eager(stage(model, false), {}, true) {}
  static stages::Stage stage(const stages::ModelSpec& model, bool channels_last) {
    const auto network = stages::build_network(model, kShape);
    stages::Stage made(network, {0, network->size(), true, true}, {.lr = 0.1}, at::kCPU,
                       {.channels_last = channels_last});
    made.restore(stages::initial_state(*network, 7));
    return made;
  }

  Learner programs, eager;
};

stages::ModelSpec partime_cnn(int features, int kernel, const std::string& norm = "none") {
  return {.layers = 4, .features = features, .kernel = kernel, .norm = norm};
}

at::Tensor sample(std::int64_t n) {
  return at::rand({1, 3, 12, 16}, at::detail::createCPUGenerator(std::uint64_t(1000 + n)));
}

/// Largest difference, as a part of the largest number.
double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() / b.abs().max().item<double>();
}

TEST(Program, DriftsFromEagerByRoundingOnlyOver500Frames) {
  for (const stages::ModelSpec& model :
       {partime_cnn(8, 3), partime_cnn(16, 5), partime_cnn(20, 3), partime_cnn(20, 3, "instance"),
        partime_cnn(32, 3, "group")}) {
    SCOPED_TRACE(std::to_string(model.features) + model.norm);
    Pair pair(model);
    float mine = 0, theirs = 0;
    for (int n = 0; n < 500; ++n) {
      mine = learn(pair.programs, sample(n));
      theirs = learn(pair.eager, sample(n));
    }
    EXPECT_NEAR(mine / theirs, 1, 1e-3);
    EXPECT_LT(difference(pair.programs.weights(), pair.eager.weights()), 1e-3);
    EXPECT_EQ(left_to_libtorch(pair.programs.operations()), std::set<std::string>());
  }
}

TEST(Program, MergesNeighbours) {
  Pair pair(partime_cnn(16, 5));
  learn(pair.programs, sample(0));  // records all
  const std::vector<capture::OperationInfo> all = pair.programs.operations();
  const auto count = [&](const std::string& part) {
    return std::ranges::count_if(
        all, [&](const auto& info) { return info.name.find(part) != std::string::npos; });
  };
  EXPECT_EQ(count("forward"), 4);
  EXPECT_EQ(count(" relu"), 3) << "with the convolution before";
  EXPECT_EQ(count(" sigmoid"), 1);
  EXPECT_EQ(count("masked"), 3) << "nobody wants the sample's gradient";
  const kernels::Layout middle{12, 16, 16};
  const bool pairs = kernels::gradients_together({.input = middle, .output = middle, .kernel = 5});
  EXPECT_EQ(count("gradients "), pairs ? 2 : 0) << "of the two layers in the middle";
  EXPECT_EQ(count("weight-gradient"), pairs ? 2 : 4);
  // The sample's layout, 4 + 1 forward, 1 + 3 + 4 backward, the update.
  EXPECT_EQ(all.size(), pairs ? 13u : 15u);
}

TEST(Program, RunsLayersByKernelsOrElseAsLibTorch) {
  for (const LayeredNet& net : layered_nets())
    EXPECT_EQ(learn_as_eagerly(net.layers, at::kCPU), net.left) << net.name;
  EXPECT_EQ(learn_as_eagerly({{"conv", {{"out", 8}, {"kernel", 3}}},
                              {"maxpool"},
                              {"attention", {{"groups", 2}}},
                              {"upsample"},
                              {"conv", {{"out", 3}, {"kernel", 3}}},
                              {"tanh"}},
                             at::kCPU),
            std::set<std::string>());
}

/// On each instruction set, and shared by three threads, as in double; by kernels alone.
void expect_as_double(const Operators& of) {
  const Tensors wanted = in_double(of);
  kernels::each_instruction_set([&] {
    SCOPED_TRACE(kernels::instruction_set());
    kernels::Team team(3);
    const Made made = by_program(of, at::kCPU, {.team = &team});
    expect_near(made.results, wanted);
    const std::set<std::string> left = left_to_libtorch(made.operations);
    EXPECT_TRUE(left.empty()) << *left.begin();
  });
}

class ProgramOf : public testing::TestWithParam<Family> {};

TEST_P(ProgramOf, EqualsDoubleOnAnyShape) {
  for (int i = 0; i < repetitions(200) && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    Random random{std::uint64_t(i)};
    expect_as_double(GetParam().any(random));
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, ProgramOf, testing::ValuesIn(families()),
                         [](const auto& info) { return info.param.name; });

/// So a new rule, too, needs operators here that show it.
TEST(Program, EveryRuleIsInAFamilyOfOperators) {
  std::set<std::string> called;
  const auto call = [&](const Operators& of) {
    for (const Call& call : record_calls([&] { of.body(of.given); }))
      called.insert(call.name().substr(0, call.name().find_last_not_of('_') + 1));
  };
  for (const Family& family : families()) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      Random random(seed);
      call(family.any(random));
    }
  }
  const at::Tensor x = at::rand({3});
  call(functions_of(x, x));
  call(gradients_of(x, x));
  std::set<std::string> missed;
  for (const Rules* const rules : kRules) {
    for (const auto& [name, rule] : *rules)
      if (!called.contains(name.substr(0, name.find_last_not_of('_') + 1))) missed.insert(name);
  }
  // These have tests of their own, or, cuDNN's, are the same rule as one that is here.
  EXPECT_EQ(missed, (std::set<std::string>{"aten::convolution", "aten::convolution_backward",
                                           "aten::cudnn_batch_norm", "millrace::add_up",
                                           "millrace::check_and_update", "millrace::copy_bytes",
                                           "millrace::sample_of_bytes"}));
}

TEST(Program, FunctionsOfElementsAreTheirDefinitions) {
  const at::Tensor x = at::arange(-900, 901).to(at::kFloat) / 100 + 0.0031f;
  const at::Tensor y = (at::arange(1801) * 37 % 400).to(at::kFloat) / 100 + 0.5003f;
  for (const Operators& all : {functions_of(x, y), gradients_of(x, y)}) {
    const Tensors wanted = in_double(all);
    kernels::each_instruction_set([&] {
      const Made made = by_program(all, at::kCPU);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_TRUE(at::allclose(made.results[i].to(at::kDouble), wanted[i], 5e-6, 5e-6))
            << i << " " << kernels::instruction_set();
      }
      EXPECT_EQ(left_to_libtorch(made.operations), std::set<std::string>());
    });
  }
}

TEST(Program, FunctionsOfElementsLetLargeNumbersAndNaNThrough) {
  const at::Tensor x = at::tensor({-1e30f, -3000.f, -0.f, 0.f, 3000.f, 1e30f}),
                   y = at::full_like(x, 3), none = at::full_like(x, NAN);
  const Operators all = functions_of(x, y);
  expect_near(by_program(all, at::kCPU).results, in_double(all));
  for (const at::Tensor& made : by_program(functions_of(none, y), at::kCPU).results)
    EXPECT_TRUE(made.isnan().all().item<bool>());
  EXPECT_TRUE(at::equal(by_program(gradients_of(none, y), at::kCPU).results[0], y));
}

TEST(Program, UpdatesAreAsInDoubleAndTheSameBitsByThreadsThatShareThem) {
  kernels::each_instruction_set([] {
    SCOPED_TRACE(kernels::instruction_set());
    expect_updates_as_in_double(at::kCPU);
  });
  kernels::Team team(2);
  const Tensors alone = expect_updates_as_in_double(at::kCPU),
                shared = expect_updates_as_in_double(at::kCPU, {.team = &team});
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(at::equal(alone[i], shared[i])) << i;
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
    const auto forward = [&](const Tensors& t) {
      return at::convolution(t[0], t[1], t[2], k.stride, k.padding, k.dilation, k.transposed,
                             {0, 0}, k.groups);
    };
    const at::Tensor dy = at::empty(forward({x, w, b}).sizes(), images).uniform_(-1, 1, generator);
    expect_as_double({[&](const Tensors& t) {
                        const Tensor y = forward(t);
                        const auto [dx, dw, db] = at::convolution_backward(
                            t[3], t[0], t[1], t[2].sizes(), k.stride, k.padding, k.dilation,
                            k.transposed, {0, 0}, k.groups, {true, true, true});
                        return Tensors{y, dx, dw, db};
                      },
                      {x, w, b, dy}});
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
  const std::vector<capture::Lifetime> values = {
      {0, 2, 100}, {1, 3, 64}, {3, 5, 1000}, {4, 4, 8}, {0, 5, 1}};
  const capture::ArenaPlan plan = capture::plan_arena(values);
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
