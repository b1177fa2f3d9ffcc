#include "tests/capture/program/operators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>

#include "capture/program/operation.h"
#include "capture/program/stage_programs.h"

namespace millrace::program {
namespace {

using Sides = std::vector<std::int64_t>;
using Of = std::function<Tensor(const Tensor&, const Tensor&)>;

/// LibTorch's operator, with parameters of some values, false for flags.
Of called(const char* aten, std::size_t operands, std::size_t parameters) {
  const auto schema = [&](const char* overload) {
    return c10::Dispatcher::singleton().findSchema({aten, overload});
  };
  const c10::OperatorHandle operation = schema("") ? *schema("") : schema("Tensor").value();
  return [=](const Tensor& x, const Tensor& y) {
    static constexpr double values[] = {0.3, 1.5, 2};
    torch::jit::Stack stack = {x};
    if (operands > 1) stack.push_back(y);
    for (std::size_t i = 0; i < parameters; ++i) stack.push_back(values[i]);
    while (stack.size() < operation.schema().arguments().size()) stack.push_back(false);
    operation.callBoxed(stack);
    return stack[0].toTensor();
  };
}

/// Of functions-inl.h: those whose name ends with "gradient", or the others.
std::vector<Of> listed(bool gradients, std::size_t operands) {
  std::vector<Of> all;
  const auto add = [&](std::string_view name, const char* aten, std::size_t count,
                       std::size_t parameters) {
    if (aten && count == operands && name.ends_with("gradient") == gradients)
      all.push_back(called(aten, count, parameters));
  };
#define FUNCTION(enumerator, name, aten, operands, parameters, ...) \
  add(name, aten, operands, parameters);
#include "capture/program/kernels/functions-inl.h"
  return all;
}
std::vector<Of> with(std::vector<Of> some, const std::vector<Of>& more) {
  some.insert(some.end(), more.begin(), more.end());
  return some;
}

const std::vector<Of> kOfOne =
    with({[](const Tensor& x, const Tensor&) { return at::gelu(x, "none"); },
          [](const Tensor& x, const Tensor&) { return at::gelu(x, "tanh"); },
          [](const Tensor& x, const Tensor&) { return x.abs().sqrt(); },
          [](const Tensor& x, const Tensor&) { return x.clamp(-0.4, 0.7); },
          [](const Tensor& x, const Tensor&) { return x.clamp_min(-0.2); },
          [](const Tensor& x, const Tensor&) { return x * 0.3; },
          [](const Tensor& x, const Tensor&) { return x - 2.5; }},
         listed(false, 1));
const std::vector<Of> kOfTwo = with({[](const Tensor& x, const Tensor& y) { return x + y; },
                                     [](const Tensor& x, const Tensor& y) { return x - y; },
                                     [](const Tensor& x, const Tensor& y) { return x.add(y, 0.3); },
                                     [](const Tensor& x, const Tensor& y) { return x.sub(y, 0.3); },
                                     [](const Tensor& x, const Tensor& y) { return x / y; }},
                                    listed(false, 2));
const std::vector<Of> kGradients = with(
    {[](const Tensor& g, const Tensor& x) { return at::threshold_backward(g, x, 0); },
     [](const Tensor& g, const Tensor& x) { return at::gelu_backward(g, x, "none"); },
     [](const Tensor& g, const Tensor& x) { return at::gelu_backward(g, x, "tanh"); },
     [](const Tensor& g, const Tensor& x) { return at::elu_backward(g, 0.5, 1.5, 2, false, x); },
     [](const Tensor& g, const Tensor& y) { return at::elu_backward(g, 0.5, 1.5, 2, true, y); },
     [](const Tensor& g, const Tensor& x) {
       const auto [dx, dw] = at::_prelu_kernel_backward(g, x, g);
       return dx + dw;
     }},
    listed(true, 2));

template <class Function>
Function any_of(const std::vector<Function>& functions, Random& random) {
  return functions[std::size_t(random.up_to(int(functions.size())) - 1)];
}

/// Operands in any strides, spread over the result along any dimensions.
Operators elements(Random& random) {
  const std::int64_t dimensions = random.up_to(5);
  Sides sizes, narrow;
  for (std::int64_t d = 0; d < dimensions; ++d) {
    sizes.push_back(random.flip() ? 4 * random.up_to(3) : random.up_to(9));
    narrow.push_back(random.flip() ? sizes.back() : 1);
  }
  narrow.erase(narrow.begin(), narrow.begin() + random.up_to(int(dimensions)) - 1);
  const std::int64_t a = random.up_to(int(dimensions)) - 1, b = random.up_to(int(dimensions)) - 1;
  const auto turned = [=](const Tensor& t) { return t.transpose(a, b); };
  const Of one = any_of(kOfOne, random), two = any_of(kOfTwo, random),
           gradient = any_of(kGradients, random);
  const Tensor x = random.numbers(sizes), y = random.numbers(narrow);
  return {[=](const Tensors& t) {
            const Tensor part = t[0].narrow(0, t[0].size(0) / 2, t[0].size(0) - t[0].size(0) / 2);
            return Tensors{one(t[0], {}),
                           one(turned(t[0]), {}),
                           one(part, {}),
                           two(t[0], t[1]),
                           two(t[2], t[0]),
                           gradient(t[2], t[0]),
                           gradient(t[1].expand_as(t[0]), t[0])};
          },
          {x, y.abs() + 0.1, turned(turned(random.numbers(sizes)).contiguous())}};
}

/// And norms of batches whose statistics are frozen.
Operators group_norms(Random& random) {
  const std::int64_t groups = random.up_to(4), channels = groups * random.up_to(4);
  const int most = random.up_to(10) == 1 ? 140 : 24;
  const std::int64_t height = 5 + random.up_to(most), width = 5 + random.up_to(most);
  const bool scaled = random.flip();
  const Tensor x = random.numbers({1, channels, height, width});
  // Of one sign with what they meet, or a weight's gradient is but rounding.
  const Tensor dy = random.numbers(x.sizes()) + x, mean = -random.numbers(channels).abs();
  return {[=](const Tensors& t) {
            const std::optional<Tensor> w = scaled ? std::optional(t[2]) : std::nullopt,
                                        b = scaled ? std::optional(t[3]) : std::nullopt;
            const auto [y, mean, rstd] =
                at::native_group_norm(t[0], w, b, 1, channels, height * width, groups, 1e-5);
            const auto [dx, dw, db] =
                at::native_group_norm_backward(t[1], t[0], mean, rstd, w, 1, channels,
                                               height * width, groups, {true, scaled, scaled});
            const auto [z, unused, other] =
                at::native_batch_norm(t[0], w, b, t[5], t[4], false, 0.1, 1e-5);
            const auto [dz, dv, dc] = at::native_batch_norm_backward(
                t[1], t[0], w, t[5], t[4], {}, {}, false, 1e-5, {true, scaled, scaled});
            Tensors all = {y, mean, rstd, dx, z, dz};
            if (scaled) all.insert(all.end(), {dw, db, dv, dc});
            return all;
          },
          {x, dy, random.numbers(channels), random.numbers(channels),
           random.numbers(channels).abs(), mean}};
}

/// Layer norm, softmax, sums.
Operators rows(Random& random) {
  const std::int64_t rows = random.up_to(40);
  const std::int64_t row = 15 + random.up_to(random.up_to(8) == 1 ? 2000 : 200);
  const bool scaled = random.flip();
  const Tensor x = random.numbers({rows, row});
  return {
      [=](const Tensors& t) {
        const std::optional<Tensor> w = scaled ? std::optional(t[2]) : std::nullopt;
        const auto [y, mean, rstd] = at::native_layer_norm(t[0], {row}, w, w, 1e-5);
        const auto [dx, dw, db] = at::native_layer_norm_backward(t[1], t[0], {row}, mean, rstd, w,
                                                                 w, {true, scaled, scaled});
        const Tensor s = at::_softmax(t[0], -1, false), l = at::_log_softmax(t[0], 1, false);
        Tensors all = {y, mean, rstd, dx, s, l};
        if (scaled) all.insert(all.end(), {dw, db});
        all.insert(
            all.end(),
            {std::get<0>(at::native_layer_norm(t[0].view({rows, 1, row}), {1, row}, {}, {}, 1e-5)),
             at::_softmax(t[3].t(), 1, false),
             at::_softmax_backward_data(t[1], s, 1, t[0].scalar_type()),
             at::_log_softmax_backward_data(t[3].t(), l, 1, t[0].scalar_type()), t[0].sum(0),
             t[0].view({1, rows, row, 1}).sum({0, 2, 3}),
             t[0].view({1, rows, row, 1}).mean({2, 3}, true), t[0].sum(1), t[0].pow(2), t[0].sum(),
             at::linalg_vector_norm(t[0], 2, Sides{1}, true),
             t[0] * at::scalar_tensor(3, at::kLong), at::scalar_tensor(0.3, at::kDouble) - t[0],
             t[3].sum(Sides{0, 1}, true), t[0].view({rows, 1, row}).sum(1)});
        return all;
      },
      {x, random.numbers({rows, row}) + x, random.numbers({row}), random.numbers({row, rows})}};
}

Operators pools(Random& random) {
  const auto side = [&](int most) { return Sides{random.up_to(most), random.up_to(most)}; };
  const Sides kernel = side(3), stride = side(4), dilation = side(2), tiles = side(4),
              uneven = side(6);
  const Sides padding = {(random.up_to(4) - 1) * kernel[0] / 6,
                         (random.up_to(4) - 1) * kernel[1] / 6};
  const std::int64_t channels = random.up_to(20),
                     height = tiles[0] * random.up_to(5) + 4 * tiles[0],
                     width = tiles[1] * random.up_to(5) + 4 * tiles[1];
  const bool ceil = random.flip(), counts = random.flip();
  const std::optional<std::int64_t> divisor =
      random.flip() ? std::optional<std::int64_t>(3) : std::nullopt;
  const Tensor with_ties = (random.numbers({1, channels, height, width}) * 3).round() + 0.125;
  return {[=](const Tensors& t) {
            const Tensor& x = t[0];
            const auto [y, places] =
                at::max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil);
            const Tensor mean = at::avg_pool2d(x, kernel, stride, padding, ceil, counts, divisor),
                         adapted = at::_adaptive_avg_pool2d(x, uneven),
                         one = at::_adaptive_avg_pool2d(x, {1, 1});
            const auto [most, where] = at::adaptive_max_pool2d(x, tiles);
            Tensors all = {y, mean, adapted, one, most};
            all.insert(all.end(),
                       {at::max_pool2d_with_indices_backward(at::sigmoid(y), x, kernel, stride,
                                                             padding, dilation, ceil, places),
                        at::avg_pool2d_backward(at::sigmoid(mean), x, kernel, stride, padding, ceil,
                                                counts, divisor),
                        at::_adaptive_avg_pool2d_backward(adapted, x),
                        at::_adaptive_avg_pool2d_backward(one, x),
                        at::adaptive_max_pool2d_backward(at::sigmoid(most), x, where)});
            return all;
          },
          {with_ties}};
}

/// Interpolation and padding that repeats pixels.
Operators resamplings(Random& random) {
  const std::int64_t channels = random.up_to(20), height = 2 + random.up_to(12),
                     width = 2 + random.up_to(12);
  const Sides from = {1, channels, height, width}, size = {random.up_to(30), random.up_to(30)},
              pads = {random.up_to(3) - 1, random.up_to(3) - 1, random.up_to(3) - 1,
                      random.up_to(3) - 1};
  const bool corners = random.flip();
  const std::optional<double> none, half = random.flip() ? none : std::optional(2.0);
  const Sides large = half ? Sides{2 * height, 2 * width} : size;
  return {
      [=](const Tensors& t) {
        const Tensor& x = t[0];
        const Tensor linear = at::upsample_bilinear2d(x, large, corners, half, half),
                     cubic = at::upsample_bicubic2d(x, size, corners, none, none),
                     near = at::upsample_nearest2d(x, large, half, half),
                     mirror = at::reflection_pad2d(x, pads), edge = at::replication_pad2d(x, pads);
        Tensors all = {linear, cubic, near, mirror, edge};
        all.insert(all.end(),
                   {at::upsample_bilinear2d_backward(linear * 2, large, from, corners, half, half),
                    at::upsample_bicubic2d_backward(cubic * 2, size, from, corners, none, none),
                    at::upsample_nearest2d_backward(near * 2, large, from, half, half),
                    at::reflection_pad2d_backward(mirror * 2, x, pads),
                    at::replication_pad2d_backward(edge * 2, x, pads)});
        return all;
      },
      {random.numbers(from)}};
}

/// And zeros, and what is made of copies.
Operators copies(Random& random) {
  const std::int64_t a = random.up_to(6), b = random.up_to(6), h = random.up_to(12),
                     w = random.up_to(12);
  return {[=](const Tensors& t) {
            const Tensor all = at::cat({t[0], t[1]}, 1);
            Tensor part = at::zeros_like(all);
            part.narrow(1, a, b).copy_(t[1]);
            Tensor gone = t[2].to(t[2].scalar_type(), false, /*copy=*/true).mul_(2);
            const Tensor other = gone.clone(), nothing = gone.zero_();
            const Tensor square = t[2].clone(), turned = square.t().contiguous();
            const Tensor twice = at::cat({t[0], t[0]}, 1), four = at::cat({twice, twice}, 1);
            const Tensor shuffled = at::pixel_shuffle(four, 2);
            return Tensors{all,
                           part,
                           other,
                           nothing,
                           at::zeros({h, h}, all.options()) + square,
                           all.new_zeros({h}) + square,
                           turned,
                           all.permute({0, 2, 3, 1}).contiguous(),
                           all.contiguous(at::MemoryFormat::ChannelsLast),
                           at::cat({t[0], t[0]}, 3),
                           at::cat({square, turned}, 0),
                           at::constant_pad_nd(t[0], {1, 2, h > 3 ? -1 : 0, 1}, 0),
                           at::roll(t[0], {h - 1, 2}, {2, 3}),
                           square.repeat({2, 1, 3}),
                           shuffled,
                           at::pixel_unshuffle(shuffled * 2, 2),
                           at::glu(twice, 1),
                           at::glu_backward(t[0], twice, 1)};
          },
          {random.numbers({1, a, h, w}), random.numbers({1, b, h, w}), random.numbers({h, h})}};
}

Operators squared_errors(Random& random) {
  const std::int64_t side = random.up_to(130);
  const Sides sizes = {1, 3, side, side};
  return {[](const Tensors& t) {
            return Tensors{at::mse_loss(t[0], t[1]), at::mse_loss_backward(t[2], t[0], t[1], 1),
                           at::huber_loss(t[0], t[1], 1, 0.3), at::huber_loss(t[0], t[1], 2, 2),
                           at::huber_loss_backward(t[2], t[0], t[1], 1, 0.3)};
          },
          {random.numbers(sizes), random.numbers(sizes), at::ones({})}};
}

/// In float32 on both sides: in double, a value halfway between two bytes may go the other way.
Operators quantized(Random& random) {
  const std::int64_t channels = random.up_to(40), height = random.up_to(9),
                     width = random.up_to(50);
  return {[](const Tensors& t) {
            Tensors all;
            for (const Tensor& given : t) {
              const Tensor x = given.to(at::kFloat);
              const stages::Quantized bytes =
                  stages::quantize(x.dim() == 4 ? x.contiguous(image_format(x.device())) : x);
              all.insert(all.end(), {bytes.ranges, stages::dequantize(bytes) * 1.0});
            }
            return all;
          },
          {random.numbers({1, channels, height, width}), random.numbers({1, 10 * channels}),
           at::full({1, channels, height, width}, 0.3f)}};
}

/// A linear layer is a convolution of kernel 1, whether of one row or of several.
Operators linear_layers(Random& random) {
  const std::int64_t rows = random.up_to(8), in = random.up_to(60), out = random.up_to(30);
  return {[=](const Tensors& t) {
            const Tensor &x = t[0], &w = t[1], &b = t[2], &dy = t[3];
            const Tensor some = at::stack({x, x * 2}), turned = some.transpose(1, 2).contiguous();
            const Tensor q = at::stack({some, some * 0.3}) * 0.2, k = q * 0.7, v = -q;
            const auto [mixed, logarithms] =
                at::_scaled_dot_product_flash_attention_for_cpu(q, k, v);
            const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
                v, q, k, v, mixed, logarithms, 0, false);
            return Tensors{mixed,
                           dq + q,  // alone it may be but rounding
                           dk + k,
                           dv,
                           at::slice_backward(x, {rows, 2 * in}, 1, 0, 2 * in, 2),
                           at::select_backward(x, {rows, 3, in}, 1, 2),
                           at::addmm(b, x, w.t()),
                           dy.mm(w),
                           dy.t().mm(x),
                           dy.sum(0, true),
                           w.t().mm(dy.t()),
                           some.bmm(turned),
                           turned.bmm(some),
                           some.bmm(some.transpose(1, 2))};
          },
          {random.numbers({rows, in}), random.numbers({out, in}), random.numbers({out}),
           random.numbers({rows, out})}};
}

}  // namespace

Random::Random(std::uint64_t seed)
    : numbers_(at::detail::createCPUGenerator(seed)), sizes_(unsigned(seed)) {}

const std::vector<Family>& families() {
  static const std::vector<Family> all = {{"Elements", elements},
                                          {"GroupNorms", group_norms},
                                          {"Quantized", quantized, /*on_gpu=*/false},
                                          {"Rows", rows},
                                          {"Pools", pools},
                                          {"Resamplings", resamplings},
                                          {"Copies", copies},
                                          {"SquaredErrors", squared_errors},
                                          {"LinearLayers", linear_layers, false}};
  return all;
}

Operators functions_of(const Tensor& x, const Tensor& y) {
  return {[](const Tensors& t) {
            Tensors made;
            for (const Of& f : kOfOne) made.push_back(f(t[0], {}));
            for (const Of& f : kOfTwo) made.push_back(f(t[0], t[1]));
            return made;
          },
          {x, y}};
}

Operators gradients_of(const Tensor& x, const Tensor& g) {
  return {[](const Tensors& t) {
            Tensors made;
            for (const Of& f : kGradients) made.push_back(f(t[1], t[0]));
            return made;
          },
          {x, g}};
}

const std::vector<LayeredNet>& layered_nets() {
  static const std::vector<LayeredNet> all = {
      {"AResNet",
       {{"conv", {{"out", 16}, {"kernel", 7}, {"stride", 2}}},
        {"groupnorm", {{"groups", 4}}},
        {"relu"},
        {"maxpool"},
        {"basic-block", {{"out", 32}, {"stride", 1}}},
        {"basic-block", {{"out", 64}, {"stride", 2}}},
        {"conv", {{"out", 192}, {"kernel", 1}}},
        {"pixel-shuffle", {{"factor", 8}}},
        {"sigmoid"}},
       {}},
      {"AUNet",
       {{"conv", {{"out", 8}, {"kernel", 3}}},
        {"relu"},
        {"maxpool"},
        {"conv", {{"out", 16}, {"kernel", 3}}},
        {"silu"},
        {"upsample", {{"factor", 2}}},
        {"concat", {{"from", 1}}},
        {"conv", {{"out", 8}, {"kernel", 3}}},
        {"instancenorm"},
        {"leaky-relu"},
        {"conv", {{"out", 3}, {"kernel", 3}}},
        {"sigmoid"}},
       {}},
      {"ATransformersMlp",
       {{"conv", {{"out", 16}, {"kernel", 3}, {"stride", 2}}},
        {"avgpool"},
        {"groupnorm", {{"groups", 1}}},
        {"conv", {{"out", 32}, {"kernel", 1}}},
        {"gelu"},
        {"conv", {{"out", 48}, {"kernel", 1}}},
        {"pixel-shuffle", {{"factor", 4}}},
        {"sigmoid"}},
       {}},
      {"PatchesEmbedded",  // no tile of such a kernel fits into a GPU's shared memory
       {{"conv", {{"out", 4}, {"kernel", 31}, {"stride", 32}}},
        {"gelu"},
        {"conv", {{"out", 3}, {"kernel", 1}}},
        {"upsample", {{"factor", 32}}},
        {"sigmoid"}},
       {}},
      {"FrozenBatchNorms",
       {{"conv", {{"out", 8}, {"kernel", 3}}},
        {"batchnorm"},
        {"relu"},
        {"conv", {{"out", 16}, {"kernel", 1}}},
        {"batchnorm"},
        {"silu"},
        {"conv", {{"out", 3}, {"kernel", 1}}},
        {"sigmoid"}},
       {}}};
  return all;
}

std::set<std::string> learn_as_eagerly(const std::vector<stages::LayerSpec>& layers,
                                       c10::Device device) {
  const stages::ImageShape shape{3, 32, 32};
  const auto network = stages::build_network({.preset = "layers", .layer = layers}, shape);
  const auto stage_on = [&](c10::Device there, bool channels_last) {
    stages::Stage stage(network, {0, network->size(), true, true}, {.lr = 0.1}, there,
                        {.channels_last = channels_last});
    stage.restore(stages::initial_state(*network, 7));
    return stage;
  };
  Learner eager(stage_on(at::kCPU, false), {}, true), programs(stage_on(device, device.is_cpu()));
  Random random(1);
  for (int n = 0; n < 3; ++n) {
    const Tensor sample = at::sigmoid(random.numbers({1, 3, 32, 32}));
    EXPECT_NEAR(learn(programs, sample.to(device)), learn(eager, sample), 1e-5);
  }
  const Tensor begun = stage_on(at::kCPU, false).parameters().flat(), wanted = eager.weights();
  EXPECT_LT(error(programs.weights().cpu() - begun, wanted - begun), 1e-4);
  return left_to_libtorch(programs.operations());
}

Made by_program(const Operators& of, c10::Device device, const ProgramOptions& options) {
  Tensors there;
  for (const Tensor& t : of.given) there.push_back(t.to(device));
  Made made;
  Arena arena(device);
  Program program([&] { made.results = of.body(there); }, arena, options);
  for (Tensor& t : made.results) t.fill_(NAN);
  program.run();
  made.operations = program.operations();
  for (Tensor& t : made.results) t = t.cpu();
  return made;
}

Tensors in_double(const Operators& of) {
  Tensors wide;
  for (const Tensor& t : of.given) wide.push_back(t.to(at::kDouble));
  return of.body(wide);
}

double error(const Tensor& got, const Tensor& wanted, double least) {
  const Tensor exact = wanted.to(at::kDouble);
  const Tensor difference = got.cpu().to(at::kDouble) - exact;
  return difference.norm().item<double>() / (std::max(exact.norm().item<double>(), least) + 1e-30);
}

void expect_near(const Tensors& got, const Tensors& wanted, double most) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_LT(error(got[i], wanted[i]), most) << i;
}

std::set<std::string> left_to_libtorch(const std::vector<capture::OperationInfo>& operations) {
  std::set<std::string> names;
  for (const capture::OperationInfo& info : operations) {
    if (info.kernel == capture::kLibTorch) names.insert(info.name);
  }
  return names;
}

}  // namespace millrace::program
