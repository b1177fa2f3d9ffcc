#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "capture/program/lower/lowering.h"

namespace millrace::program {
namespace {

constexpr int kLargestOnGpu = 31;  ///< taps per row: their sums fill a thread's registers
/// In floats: larger unfolded inputs are left to LibTorch, which doesn't unfold.
constexpr double kLargestUnfolded = 4 << 20;

bool is_transposed(const Call& call, std::size_t first) {
  return call.arguments[first + 3].toBool();
}

/// The convolution, its pass left open, if there are kernels for it. `first`: argument index of
/// stride; padding, dilation, transposed, output_padding and groups follow.
std::optional<kernels::Convolution> described(const at::Tensor& input, const at::Tensor& output,
                                              const at::Tensor& weight, const Call& call,
                                              std::size_t first) {
  if (!are_pictures(input, output) || weight.dim() != 4 || !is_dense(weight) ||
      !weight.is_contiguous())
    return {};
  const auto taps = [&](std::size_t side) {
    const auto number = [&](std::size_t argument) {
      const std::vector<std::int64_t> of_sides = call.arguments[argument].toIntVector();
      return int(of_sides[std::min(side, of_sides.size() - 1)]);
    };
    return kernels::Taps{.count = int(weight.size(std::int64_t(2 + side))),
                         .stride = number(first),
                         .padding = number(first + 1),
                         .dilation = number(first + 2)};
  };
  const kernels::TapGrid window = {taps(0), taps(1)};
  kernels::Convolution c = {.input = layout_of(input),
                            .output = layout_of(output),
                            .kernel = window.rows.count,
                            .stride = window.rows.stride,
                            .groups = int(call.arguments[first + 5].toInt())};
  if (is_transposed(call, first)) std::swap(c.input, c.output);
  const auto usual = [&](const kernels::Taps& t) {
    return t.count == c.kernel && t.stride == c.stride && t.padding == t.count / 2 &&
           t.dilation == 1;
  };
  if (c.kernel % 2 == 0 || !usual(window.rows) || !usual(window.columns)) c.window = window;
  const bool each_alone = c.groups == c.input.channels && c.groups == c.output.channels;
  const double unfolded = double(c.output.height) * c.output.width * c.input.channels / c.groups *
                          kernels::taps_of(window);
  if (c.window && !each_alone && unfolded > kLargestUnfolded) return {};
  if (input.is_cuda())
    return window.columns.count <= kLargestOnGpu ? std::optional(c) : std::nullopt;
  return c;
}

// convolution(input, weight, bias?, stride, ...). A transposed convolution is the input gradient of
// another one, whose output is this one's input.
bool convolution(Lowering& lower, const Call& call) {
  const at::Tensor &x = tensor(call, 0), &w = tensor(call, 1), &y = result(call);
  const at::Tensor bias = optional(call, 2);
  std::optional<kernels::Convolution> c = described(x, y, w, call, 3);
  if (!c || !are_plain(bias)) return false;
  const bool transposed = is_transposed(call, 3);
  if (transposed) c->pass = kernels::Pass::kDataGradient;
  Node node{.kind = Kind::convolution, .reads = {lower.read(x), w}, .convolution = *c};
  if (bias.defined() && !transposed) node.reads.push_back(bias);
  if (!bias.defined() || !transposed) return lower.add_image(y, std::move(node));
  const at::Tensor sums = lower.own(y, image_format(y.device()));
  node.writes = {sums};
  lower.add(std::move(node));
  return lower_map(lower, {.function = kernels::Function::add}, {sums, bias.view({-1, 1, 1})}, y);
}

// convolution_backward(gradient, input, weight, bias_sizes?, stride, ..., output_mask)
bool convolution_backward(Lowering& lower, const Call& call) {
  const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &w = tensor(call, 2);
  const at::Tensor &dx = result(call, 0), &dw = result(call, 1), &db = result(call, 2);
  std::optional<kernels::Convolution> c = described(x, dy, w, call, 4);
  if (!c || (db.defined() && !dw.defined())) return false;
  const bool transposed = is_transposed(call, 4);
  const at::Tensor gradient = lower.read(dy);
  if (dx.defined()) {
    c->pass = transposed ? kernels::Pass::kForward : kernels::Pass::kDataGradient;
    lower.add_image(dx, {.kind = Kind::convolution, .reads = {gradient, w}, .convolution = *c});
  }
  if (!dw.defined()) return true;
  const at::Tensor plain = dw.is_contiguous() ? dw : lower.own(dw, at::MemoryFormat::Contiguous);
  Node node{.kind = Kind::convolution,
            .reads = {gradient, lower.read(x)},
            .writes = {plain, transposed ? at::Tensor() : db},
            .convolution = *c};
  node.convolution.pass = kernels::Pass::kWeightGradient;
  if (transposed) std::swap(node.reads[0], node.reads[1]);
  lower.add(std::move(node));
  if (!plain.is_same(dw)) lower.add({.kind = Kind::copy, .reads = {plain}, .writes = {dw}});
  if (transposed && db.defined())
    lower.add({.kind = Kind::channel_sums, .reads = {gradient}, .writes = {db}});
  return true;
}

// Linear layers are 1x1 convolutions over a picture with a row in each pixel.

bool is_matrix(const at::Tensor& tensor) {
  return is_dense(tensor) && tensor.dim() == 2;
}
bool add_pointwise(Lowering& lower, kernels::Pass pass, const at::Tensor& input,
                   const at::Tensor& output, std::vector<at::Tensor> reads,
                   std::vector<at::Tensor> writes) {
  return lower.add(
      {.kind = Kind::convolution,
       .reads = std::move(reads),
       .writes = std::move(writes),
       .convolution = {.pass = pass, .input = layout_of(input), .output = layout_of(output)}});
}

/// a b. Memory order tells the roles: for samples [T,C] and weights [N,C], a layer's output is x
/// w', its input gradient dy w, its weight gradient dy' x.
bool add_product(Lowering& lower, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
                 const at::Tensor& made) {
  if (!is_matrix(a) || !is_matrix(b) || !is_matrix(made) || !made.is_contiguous()) return false;
  // Both transposed is (b a)', for which there is no kernel.
  if (a.size(1) > 1 && !a.is_contiguous() && !b.is_contiguous() && b.t().is_contiguous())
    return add_product(lower, lower.contiguous(a), b, bias, made);
  const at::Tensor a_turned = a.t(), b_turned = b.t();
  if (!bias.defined() && a_turned.is_contiguous() && b.is_contiguous() &&
      (a.size(1) == 1 || !a.is_contiguous())) {
    const at::Tensor dy = as_pixels(a_turned), x = as_pixels(b);
    return add_pointwise(lower, kernels::Pass::kWeightGradient, x, dy, {dy, x}, {made, {}});
  }
  if (!a.is_contiguous()) return false;
  const at::Tensor from = as_pixels(a), to = as_pixels(made);
  if (b_turned.is_contiguous()) {
    std::vector<at::Tensor> reads = {from, b_turned};
    if (bias.defined()) reads.push_back(bias);
    return add_pointwise(lower, kernels::Pass::kForward, from, to, std::move(reads), {to});
  }
  return !bias.defined() && b.is_contiguous() &&
         add_pointwise(lower, kernels::Pass::kDataGradient, to, from, {from, b}, {to});
}
bool product(Lowering& lower, const Call& call) {
  return add_product(lower, tensor(call, 0), tensor(call, 1), {}, result(call));
}
// addmm(bias, a, b, beta, alpha)
bool product_and_bias(Lowering& lower, const Call& call) {
  const at::Tensor &bias = tensor(call, 0), &made = result(call);
  return call.arguments[3].toScalar().toDouble() == 1 &&
         call.arguments[4].toScalar().toDouble() == 1 && is_dense(bias) && bias.dim() == 1 &&
         bias.size(0) == made.size(1) &&
         add_product(lower, tensor(call, 1), tensor(call, 2), bias, made);
}

}  // namespace

const Rules convolution_rules = {
    {"aten::convolution", {convolution}},
    // In traced modules; more flags follow.
    {"aten::_convolution", {convolution}},
    {"aten::convolution_backward", {convolution_backward}},
    {"aten::mm", {product, false}},
    {"aten::addmm", {product_and_bias, false}},
};

}  // namespace millrace::program
