// A step program's kernels for a GPU but for convolutions: on the host device against LibTorch's
// operators in double, and as NVRTC compiles them.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>
#include <set>

#include "capture/program/program.h"
#include "capture/program/program_stage.h"
#include "stages/guarded_update.h"
#include "stages/sample_of_bytes.h"
#include "tests/host_device/on_gpu.h"

namespace millrace::program {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Sides = std::vector<std::int64_t>;
using Body = std::function<Tensors(const Tensors& given)>;

std::set<std::string> left_to_libtorch(const std::vector<capture::OperationInfo>& operations) {
  std::set<std::string> names;
  for (const capture::OperationInfo& info : operations) {
    if (info.kernel == capture::kLibTorch) names.insert(info.name);
  }
  return names;
}

/// What the body's program makes on a device.
Tensors run_there(const Body& body, const Tensors& given, c10::Device device = kGpu) {
  Tensors there, made;
  for (const Tensor& t : given) there.push_back(t.to(device));
  Arena arena(device);
  Program program([&] { made = body(there); }, arena);
  program.run();
  EXPECT_EQ(left_to_libtorch(program.operations()), std::set<std::string>());
  for (Tensor& t : made) t = t.cpu();
  return made;
}

void expect_as_double(const Body& body, const Tensors& given) {
  Tensors wide;
  for (const Tensor& t : given) wide.push_back(t.to(at::kDouble));
  const Tensors wanted = body(wide), got = run_there(body, given);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_LT(error(got[i], wanted[i]), 2e-6) << i;
}

/// Random sizes and numbers.
class Random {
 public:
  explicit Random(std::uint64_t seed)
      : numbers_(at::detail::createCPUGenerator(seed)), sizes_(unsigned(seed)) {}
  std::int64_t up_to(int most) { return std::int64_t(1 + sizes_() % unsigned(most)); }
  bool flip() { return sizes_() % 2 == 0; }
  /// A quarter or so on the other side of 0.
  Tensor numbers(at::IntArrayRef sizes) { return at::randn(sizes, numbers_) + 0.6; }

 private:
  at::Generator numbers_;
  std::minstd_rand sizes_;
};

/// 150 times, or 2,000 in a long run.
void each_case(const std::function<void(Random& random)>& check) {
  const int cases = is_long() ? 2000 : 150;
  for (int i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    Random random{std::uint64_t(i)};
    check(random);
  }
}

using OfOne = Tensor (*)(const Tensor&);
using OfTwo = Tensor (*)(const Tensor&, const Tensor&);
const std::vector<OfOne> kOfOne = {[](const Tensor& x) { return at::neg(x); },
                                   [](const Tensor& x) { return at::abs(x); },
                                   [](const Tensor& x) { return at::sgn(x); },
                                   [](const Tensor& x) { return at::relu(x); },
                                   [](const Tensor& x) { return at::sigmoid(x); },
                                   [](const Tensor& x) { return at::tanh(x); },
                                   [](const Tensor& x) { return at::silu(x); },
                                   [](const Tensor& x) { return at::gelu(x, "none"); },
                                   [](const Tensor& x) { return at::gelu(x, "tanh"); },
                                   [](const Tensor& x) { return at::hardsigmoid(x); },
                                   [](const Tensor& x) { return at::hardswish(x); },
                                   [](const Tensor& x) { return at::hardtanh(x, -0.4, 0.7); },
                                   [](const Tensor& x) { return at::leaky_relu(x, 0.1); },
                                   [](const Tensor& x) { return at::elu(x, 0.5, 1.5, 2); },
                                   [](const Tensor& x) { return x * 0.3; },
                                   [](const Tensor& x) { return x - 2.5; }};
const std::vector<OfTwo> kOfTwo = {[](const Tensor& x, const Tensor& y) { return x + y; },
                                   [](const Tensor& x, const Tensor& y) { return x - y; },
                                   [](const Tensor& x, const Tensor& y) { return x * y; },
                                   [](const Tensor& x, const Tensor& y) { return x / y; }};
const std::vector<OfTwo> kGradients = {
    [](const Tensor& g, const Tensor& x) { return at::threshold_backward(g, x, 0); },
    [](const Tensor& g, const Tensor& x) { return at::sigmoid_backward(g, x); },
    [](const Tensor& g, const Tensor& x) { return at::tanh_backward(g, x); },
    [](const Tensor& g, const Tensor& x) { return at::silu_backward(g, x); },
    [](const Tensor& g, const Tensor& x) { return at::gelu_backward(g, x, "none"); },
    [](const Tensor& g, const Tensor& x) { return at::gelu_backward(g, x, "tanh"); },
    [](const Tensor& g, const Tensor& x) { return at::hardsigmoid_backward(g, x); },
    [](const Tensor& g, const Tensor& x) { return at::hardswish_backward(g, x); },
    [](const Tensor& g, const Tensor& x) { return at::hardtanh_backward(g, x, -0.4, 0.7); },
    [](const Tensor& g, const Tensor& x) { return at::leaky_relu_backward(g, x, 0.1, false); },
    [](const Tensor& g, const Tensor& x) { return at::elu_backward(g, 0.5, 1.5, 2, false, x); },
    [](const Tensor& g, const Tensor& y) { return at::elu_backward(g, 0.5, 1.5, 2, true, y); }};

/// Operands in any strides, spread over the result along any dimensions.
TEST(GpuNodes, FunctionsOfElementsOnAnyShape) {
  each_case([](Random& random) {
    const std::int64_t dimensions = random.up_to(5);
    Sides sizes, narrow;
    for (std::int64_t d = 0; d < dimensions; ++d) {
      sizes.push_back(random.flip() ? 4 * random.up_to(3) : random.up_to(9));
      narrow.push_back(random.flip() ? sizes.back() : 1);
    }
    narrow.erase(narrow.begin(), narrow.begin() + random.up_to(int(dimensions)) - 1);
    const std::int64_t a = random.up_to(int(dimensions)) - 1, b = random.up_to(int(dimensions)) - 1;
    const auto turned = [&](const Tensor& t) { return t.transpose(a, b); };
    const OfOne one = kOfOne[std::size_t(random.up_to(int(kOfOne.size())) - 1)];
    const OfTwo two = kOfTwo[std::size_t(random.up_to(int(kOfTwo.size())) - 1)];
    const OfTwo gradient = kGradients[std::size_t(random.up_to(int(kGradients.size())) - 1)];
    Tensor x = random.numbers(sizes), y = random.numbers(narrow),
           g = turned(turned(x).contiguous());
    const Body body = [=](const Tensors& t) {
      const Tensor part = t[0].narrow(0, t[0].size(0) / 2, t[0].size(0) - t[0].size(0) / 2);
      return Tensors{one(t[0]),
                     one(turned(t[0])),
                     one(part),
                     two(t[0], t[1]),
                     two(t[2], t[0]),
                     gradient(t[2], t[0]),
                     gradient(t[1].expand_as(t[0]), t[0])};
    };
    expect_as_double(body, {x, y.abs() + 0.1, g});
  });
}

/// On a GPU and on a core by own kernels.
void expect_as_on_a_core(const Body& body, const Tensors& given) {
  const Tensors got = run_there(body, given), wanted = run_there(body, given, at::kCPU);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_TRUE(at::allclose(got[i], wanted[i], 1e-5, 1e-6, true)) << i << got[i] << wanted[i];
}

TEST(GpuNodes, FunctionsKeepNaNAsOnACore) {
  const Tensor x = at::tensor({-200.f, -3.f, -1e-9f, -0.f, 0.f, 2.f, 3.f, 90.f, NAN});
  const Body body = [](const Tensors& t) {
    Tensors made;
    for (const OfOne f : kOfOne) made.push_back(f(t[0]));
    for (const OfTwo f : kGradients) made.push_back(f(t[1], t[0]));
    return made;
  };
  expect_as_on_a_core(body, {x, at::ones_like(x)});
}

TEST(GpuNodes, GroupNormsOnAnyShape) {
  each_case([](Random& random) {
    const std::int64_t groups = random.up_to(4), channels = groups * random.up_to(4);
    const int most = random.up_to(10) == 1 ? 140 : 24;
    const std::int64_t height = 5 + random.up_to(most), width = 5 + random.up_to(most);
    const bool scaled = random.flip();
    const Body body = [=](const Tensors& t) {
      const std::optional<Tensor> w = scaled ? std::optional(t[2]) : std::nullopt,
                                  b = scaled ? std::optional(t[3]) : std::nullopt;
      const auto [y, mean, rstd] =
          at::native_group_norm(t[0], w, b, 1, channels, height * width, groups, 1e-5);
      const auto [dx, dw, db] = at::native_group_norm_backward(
          t[1], t[0], mean, rstd, w, 1, channels, height * width, groups, {true, scaled, scaled});
      const auto [z, unused, other] =
          at::native_batch_norm(t[0], w, b, t[5], t[4], false, 0.1, 1e-5);
      const auto [dz, dv, dc] = at::native_batch_norm_backward(t[1], t[0], w, t[5], t[4], {}, {},
                                                               false, 1e-5, {true, scaled, scaled});
      Tensors all = {y, mean, rstd, dx, z, dz};
      if (scaled) all.insert(all.end(), {dw, db, dv, dc});
      return all;
    };
    const Sides sizes = {1, channels, height, width};
    const Tensor x = random.numbers(sizes);
    // Of one sign with what they meet, or a weight's gradient is but rounding.
    const Tensor dy = random.numbers(sizes) + x, mean = -random.numbers(channels).abs();
    expect_as_double(body, {x, dy, random.numbers(channels), random.numbers(channels),
                            random.numbers(channels).abs(), mean});
  });
}

/// What a mean far from zero leaves of a variance.
TEST(GpuNodes, GroupNormFarFromZero) {
  Random random(1);
  for (const std::int64_t side : {8, 120}) {
    const Tensor x = random.numbers({1, 2, side, side}) + 300;
    const Tensor wanted =
        std::get<0>(at::native_group_norm(x.to(at::kDouble), {}, {}, 1, 2, side * side, 2, 1e-5));
    const Body body = [=](const Tensors& t) {
      return Tensors{std::get<0>(at::native_group_norm(t[0], {}, {}, 1, 2, side * side, 2, 1e-5))};
    };
    EXPECT_LT(error(run_there(body, {x})[0], wanted), 3e-5);  // the float mean's own rounding
  }
}

TEST(GpuNodes, FunctionsOfRowsOnAnyShape) {
  each_case([](Random& random) {
    const std::int64_t rows = random.up_to(40);
    const std::int64_t row = 15 + random.up_to(random.up_to(8) == 1 ? 2000 : 200);
    const bool scaled = random.flip();
    const Body body = [=](const Tensors& t) {
      const std::optional<Tensor> w = scaled ? std::optional(t[2]) : std::nullopt;
      const auto [y, mean, rstd] = at::native_layer_norm(t[0], {row}, w, w, 1e-5);
      const auto [dx, dw, db] = at::native_layer_norm_backward(t[1], t[0], {row}, mean, rstd, w, w,
                                                               {true, scaled, scaled});
      const Tensor s = at::_softmax(t[0], -1, false), l = at::_log_softmax(t[0], 1, false);
      Tensors all = {y,
                     mean,
                     rstd,
                     dx,
                     s,
                     l,
                     at::_softmax_backward_data(t[1], s, 1, t[0].scalar_type()),
                     at::_log_softmax_backward_data(t[1], l, 1, t[0].scalar_type()),
                     t[0].sum(0),
                     t[0].view({1, rows, row, 1}).sum({0, 2, 3}),
                     t[0].view({1, rows, row, 1}).mean({2, 3}, true)};
      if (scaled) all.insert(all.end(), {dw, db});
      return all;
    };
    const Tensor x = random.numbers({rows, row});
    expect_as_double(body, {x, random.numbers({rows, row}) + x, random.numbers({row})});
  });
}

TEST(GpuNodes, SoftmaxOfInfinitiesAndNaN) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x =
      at::tensor({1.f, -inf, 2.f, NAN, 1.f, 2.f, -inf, -inf, -inf, 0.f, 0.f, 50.f}).view({4, 3});
  const Body body = [](const Tensors& t) {
    return Tensors{at::_softmax(t[0], -1, false), at::_log_softmax(t[0], -1, false)};
  };
  expect_as_on_a_core(body, {x});
}

TEST(GpuNodes, PoolsOnAnyShape) {
  each_case([](Random& random) {
    const auto side = [&](int most) { return Sides{random.up_to(most), random.up_to(most)}; };
    const Sides kernel = side(3), stride = side(4), dilation = side(2), tiles = side(4);
    const Sides padding = {(random.up_to(4) - 1) * kernel[0] / 6,
                           (random.up_to(4) - 1) * kernel[1] / 6};
    const std::int64_t channels = random.up_to(5),
                       height = tiles[0] * random.up_to(5) + 4 * tiles[0],
                       width = tiles[1] * random.up_to(5) + 4 * tiles[1];
    const bool ceil = random.flip(), counts = random.flip();
    const std::optional<std::int64_t> divisor =
        random.flip() ? std::optional<std::int64_t>(3) : std::nullopt;
    // With ties.
    const Tensor x = (random.numbers({1, channels, height, width}) * 3).round();
    const Body body = [=](const Tensors& t) {
      const auto [y, places] =
          at::max_pool2d_with_indices(t[0], kernel, stride, padding, dilation, ceil);
      const Tensor mean = at::avg_pool2d(t[0], kernel, stride, padding, false, counts, divisor);
      const Tensor adapted = at::_adaptive_avg_pool2d(t[0], tiles),
                   all = at::_adaptive_avg_pool2d(t[0], {1, 1});
      const Tensor large = at::upsample_nearest2d(t[0], {3 * height, 2 * width});
      return Tensors{y,
                     mean,
                     adapted,
                     all,
                     large,
                     at::max_pool2d_with_indices_backward(at::sigmoid(y), t[0], kernel, stride,
                                                          padding, dilation, ceil, places),
                     at::avg_pool2d_backward(at::sigmoid(mean), t[0], kernel, stride, padding,
                                             false, counts, divisor),
                     at::_adaptive_avg_pool2d_backward(adapted, t[0]),
                     at::_adaptive_avg_pool2d_backward(all, t[0]),
                     at::upsample_nearest2d_backward(at::sigmoid(large), {3 * height, 2 * width},
                                                     t[0].sizes())};
    };
    expect_as_double(body, {x + 0.125});
  });
}

TEST(GpuNodes, CopiesZerosAndConcatenation) {
  each_case([](Random& random) {
    const std::int64_t a = random.up_to(6), b = random.up_to(6), h = random.up_to(12),
                       w = random.up_to(12);
    const Body body = [=](const Tensors& t) {
      const Tensor all = at::cat({t[0], t[1]}, 1);
      Tensor part = at::zeros_like(all);
      part.narrow(1, a, b).copy_(t[1]);
      const Tensor square = t[2].clone(), turned = square.t().contiguous();
      return Tensors{all, part, turned, all.permute({0, 2, 3, 1}).contiguous(),
                     all.contiguous(at::MemoryFormat::ChannelsLast)};
    };
    expect_as_double(
        body, {random.numbers({1, a, h, w}), random.numbers({1, b, h, w}), random.numbers({h, h})});
  });
}

TEST(GpuNodes, TheSquaredErrorOfAnySize) {
  Random random(1);
  for (const std::int64_t side : {3, 70, 130}) {
    const Body body = [](const Tensors& t) {
      return Tensors{at::mse_loss(t[0], t[1]), at::mse_loss_backward(t[2], t[0], t[1], 1)};
    };
    const Sides sizes = {1, 3, side, side};
    expect_as_double(body, {random.numbers(sizes), random.numbers(sizes), at::ones({})});
  }
}

TEST(GpuNodes, EachByteIsTheNearestFloat) {
  const Tensor bytes = at::arange(16 * 48, at::kByte).view({16, 16, 3});
  const Tensor there = bytes.to(kGpu), sample = at::zeros({1, 3, 16, 16}, kGpu);
  Tensor expected;
  stages::sample_of_bytes(bytes, expected);
  Arena arena(kGpu);
  Program program(
      [&] {
        Tensor made = sample;
        stages::sample_of_bytes(there, made);
      },
      arena);
  sample.zero_();
  program.run();
  EXPECT_TRUE(at::equal(sample.cpu(), expected));
  EXPECT_EQ(left_to_libtorch(program.operations()), std::set<std::string>());
}

/// What one update is of: on the GPU in float, on a core in double.
struct Updated {
  Updated(const stages::OptimizerSpec& spec, const std::string& kind, c10::Device device,
          c10::ScalarType type, const Tensor& initial)
      : numbers(stages::update_numbers(spec, 2)),
        weights(initial.to(device, type)),
        gradient(at::zeros_like(weights)),
        rate(at::full({}, 0.5, at::TensorOptions(device).dtype(at::kDouble))),
        skipped(at::zeros({}, weights.options())),
        optimizer(spec, weights),
        correction(stages::make_correction({.kind = kind}, {.frames = 2, .updates = 2}, weights)) {
    if (correction) numbers.correction = correction->numbers();
  }
  Tensor update() {
    return stages::check_and_update(
        numbers,
        {.from = weights,
         .to = weights,
         .gradient = gradient,
         .state = optimizer.buffers(),
         .memory = correction ? correction->memory() : stages::Memory()},
        rate, skipped);
  }
  Tensors all() const {
    Tensors made = {weights, skipped};
    for (const Tensor& t : optimizer.buffers()) made.push_back(t);
    for (const Tensor& t : correction ? correction->memory() : stages::Memory()) made.push_back(t);
    return made;
  }
  stages::UpdateNumbers numbers;
  Tensor weights, gradient, rate, skipped;
  stages::Optimizer optimizer;
  std::optional<stages::Correction> correction;
};

void expect_same_updates(const stages::OptimizerSpec& spec, const std::string& kind,
                         std::int64_t count) {
  Random random{std::uint64_t(count)};
  const Tensor initial = random.numbers({count});
  Updated there(spec, kind, kGpu, at::kFloat, initial),
      here(spec, kind, at::kCPU, at::kDouble, initial),
      in_float(spec, kind, at::kCPU, at::kFloat, initial);
  Arena arena(kGpu);
  Tensor finite;
  Program program([&] { finite = there.update(); }, arena);
  EXPECT_EQ(program.operations().size(), 1u);
  EXPECT_EQ(left_to_libtorch(program.operations()), std::set<std::string>());
  there.skipped.zero_();
  for (int step = 0; step < 6; ++step) {
    const Tensor gradient = random.numbers({count});
    if (step == 3)
      gradient[count - 1] = step % 2 == 0 ? NAN : std::numeric_limits<float>::infinity();
    there.gradient.copy_(gradient);
    here.gradient.copy_(gradient);
    in_float.gradient.copy_(gradient);
    program.run();
    in_float.update();
    EXPECT_EQ(finite.item<bool>(), here.update().item<bool>());
  }
  const Tensors got = there.all(), wanted = here.all(), as_float = in_float.all();
  const double rounding = 3e-7 * here.weights.norm().item<double>();  // of weights, told apart
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].is_floating_point()) {
      const auto off = [&](const Tensor& made) {
        return (made.cpu().to(at::kDouble) - wanted[i]).norm().item<double>();
      };
      // No worse than LibTorch's operators in float32, whose gaps are differences of weights, too.
      const double most = 2e-6 * wanted[i].norm().item<double>() + 2 * off(as_float[i]);
      EXPECT_LT(off(got[i]), most + rounding) << i;
    } else {
      EXPECT_TRUE(at::equal(got[i].cpu(), wanted[i])) << i;
    }
  }
}

TEST(GpuNodes, EveryOptimizerWithEveryCorrection) {
  const c10::NoGradGuard no_grad;
  for (const std::string& kind : stages::optimizer_names()) {
    for (const double momentum : {0.0, 0.9}) {
      if (momentum != 0 && kind != "sgd" && kind != "rmsprop") continue;
      for (const std::string& correction : stages::correction_names()) {
        const stages::OptimizerSpec spec{.kind = kind,
                                         .lr = 1e-2,
                                         .momentum = momentum,
                                         .weight_decay = 0.01,
                                         .spike_delay = momentum != 0 ? 2 : 0};
        SCOPED_TRACE(kind + ", momentum " + std::to_string(momentum) + ", " + correction);
        for (const std::int64_t count : {3, 5000}) expect_same_updates(spec, correction, count);
      }
    }
  }
}

// ---- Networks.

stages::LayerSpec layer(const std::string& type, std::optional<std::int64_t> out = {},
                        std::int64_t kernel = 3, std::int64_t stride = 1) {
  stages::LayerSpec spec{.type = type};
  spec.out = out;
  if (type == "conv") spec.kernel = kernel;
  if (type == "conv" || type == "basic-block") spec.stride = stride;
  return spec;
}
stages::LayerSpec grouped(const std::string& type, std::int64_t groups) {
  stages::LayerSpec spec{.type = type};
  spec.groups = groups;
  return spec;
}
stages::LayerSpec scaled(const std::string& type, std::int64_t factor) {
  stages::LayerSpec spec{.type = type};
  spec.factor = factor;
  return spec;
}
stages::LayerSpec joined(std::int64_t from) {
  stages::LayerSpec spec{.type = "concat"};
  spec.from = from;
  return spec;
}

/// Trains on the GPU as on a core within rounding; what it leaves to LibTorch's operators there.
std::set<std::string> train(std::vector<stages::LayerSpec> layers) {
  const stages::ImageShape shape{3, 32, 32};
  const auto network =
      stages::build_network({.preset = "layers", .layer = std::move(layers)}, shape);
  const auto stage_on = [&](c10::Device device) {
    stages::Stage stage(network, {0, network->size(), true, true}, {.lr = 0.1}, device, {});
    stage.restore(stages::initial_state(*network, 7));
    return stage;
  };
  stages::Stage eager = stage_on(at::kCPU);
  ProgramStage step(stage_on(kGpu), 1, 1);
  Random random(1);
  for (int n = 0; n < 3; ++n) {
    const Tensor sample = at::sigmoid(random.numbers({1, 3, 32, 32}));
    const auto learn = [&](auto& stage, const Tensor& x) {
      auto kept = stage.forward({x}, x, 0);
      const float loss = kept.loss.template item<float>();
      stage.backward(kept, {}, {.first = stage.count_gradient()});
      stage.update(stage.advance(), 1);
      return loss;
    };
    EXPECT_NEAR(learn(step, sample.to(kGpu)), learn(eager, sample), 1e-5);
  }
  const Tensor begun = stage_on(at::kCPU).parameters().flat(), wanted = eager.parameters().flat();
  EXPECT_LT(error(step.stage().parameters().flat().cpu() - begun, (wanted - begun).to(at::kDouble)),
            1e-4);
  return left_to_libtorch(step.operations(0));
}

const std::set<std::string> kShuffles = {"aten::pixel_shuffle", "aten::pixel_unshuffle"};

TEST(GpuNodes, AResNetLeavesItsShufflesToLibTorch) {
  EXPECT_EQ(train({layer("conv", 16, 7, 2), grouped("groupnorm", 4), layer("relu"),
                   layer("maxpool"), layer("basic-block", 32), layer("basic-block", 64, 3, 2),
                   layer("conv", 192, 1), scaled("pixel-shuffle", 8), layer("sigmoid")}),
            kShuffles);
}

TEST(GpuNodes, AUNetLeavesNothingToLibTorch) {
  EXPECT_EQ(train({layer("conv", 8), layer("relu"), layer("maxpool"), layer("conv", 16),
                   layer("silu"), scaled("upsample", 2), joined(1), layer("conv", 8),
                   layer("instancenorm"), layer("leaky-relu"), layer("conv", 3), layer("sigmoid")}),
            std::set<std::string>());
}

TEST(GpuNodes, ATransformersMlpLeavesItsShufflesToLibTorch) {
  EXPECT_EQ(train({layer("conv", 16, 3, 2), layer("avgpool"), grouped("groupnorm", 1),
                   layer("conv", 32, 1), layer("gelu"), layer("conv", 48, 1),
                   scaled("pixel-shuffle", 4), layer("sigmoid")}),
            kShuffles);
}

TEST(GpuNodes, FrozenBatchNormsLeaveNothingToLibTorch) {
  EXPECT_EQ(train({layer("conv", 8), layer("batchnorm"), layer("relu"), layer("conv", 16, 1),
                   layer("batchnorm"), layer("silu"), layer("conv", 3, 1), layer("sigmoid")}),
            std::set<std::string>());
}

TEST(GpuNodes, CompileWithoutSpillsForEveryGeneration) {
  std::vector<std::string> names = {"channel_sums",
                                    "column_sums",
                                    "layer_norm_weight_gradients",
                                    "look_at_gradient",
                                    "measure_step",
                                    "pool<true>",
                                    "pool<false>",
                                    "pool_gradient<true>",
                                    "pool_gradient<false>",
                                    "softmax<512>",
                                    "softmax_gradient<512>",
                                    "norm_parts<4, 512>",
                                    "norm_gradient_parts<4, 512>",
                                    "map<millrace::gpu::Copied, 4>"};
  for (const char* const function : {"gelu_tanh_gradient", "elu", "divide"})
    names.push_back(std::string("map<millrace::gpu::Mapped<millrace::kernels::Function::") +
                    function + ">, 4>");
  for (const char* const how : {"whole", "in_parts", "frozen"}) {
    for (const char* const kernel : {"norm", "norm_gradient"})
      names.push_back(std::string(kernel) + "<millrace::gpu::Norm::" + how + ", 4, 512>");
  }
  for (const char* const rule :
       {"none", "discrepancy", "weight_prediction", "gap_aware", "dc_asgd"}) {
    for (const int optimizer : {0, 2, 3})
      names.push_back("update<" + std::to_string(optimizer) +
                      ", millrace::stages::CorrectionRule::" + rule + ">");
  }
  expect_no_spills(names);
}

}  // namespace
}  // namespace millrace::program
