// Operators as others for which there are kernels.
#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>

#include <cmath>
#include <limits>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

Rule composed(void (*body)(const Call& call)) {
  return {[=](Lowering& lower, const Call& call) { return lower.compose([&] { body(call); }); }};
}

void put(const at::Tensor& made, const Call& call, std::size_t index = 0) {
  at::Tensor there = result(call, index);
  there.copy_(made);
}

// bmm(a, b)
void products(const Call& call) {
  const at::Tensor &a = tensor(call, 0), &b = tensor(call, 1);
  for (std::int64_t i = 0; i < a.size(0); ++i) result(call).select(0, i).copy_(a[i].mm(b[i]));
}

// pow(x, exponent): of these exponents
bool power(Lowering& lower, const Call& call) {
  if (!call.arguments[1].isScalar()) return false;
  const at::Tensor& x = tensor(call, 0);
  const double exponent = call.arguments[1].toScalar().toDouble();
  const auto is = [&](double number, const auto& made) {
    return exponent == number && lower.compose([&] { put(made(), call); });
  };
  return is(0.5, [&] { return x.sqrt(); }) || is(1, [&] { return x; }) ||
         is(2, [&] { return x * x; }) || is(3, [&] { return x * x * x; });
}

// clamp(x, least?, most?), clamp_min(x, least): by numbers
bool clamp(Lowering& lower, const Call& call) {
  constexpr double endless = std::numeric_limits<double>::infinity();
  double bounds[] = {-endless, endless};
  for (std::size_t i = 1; i < call.arguments.size(); ++i) {
    if (call.arguments[i].isTensor()) return false;
    if (!call.arguments[i].isNone()) bounds[i - 1] = call.arguments[i].toScalar().toDouble();
  }
  return lower.compose([&] { put(at::hardtanh(tensor(call, 0), bounds[0], bounds[1]), call); });
}

// _prelu_kernel_backward(gradient, x, weight) -> (gradient of x, of each use of the weight)
void prelu_gradient(const Call& call) {
  const at::Tensor &gradient = tensor(call, 0), &x = tensor(call, 1);
  const at::Tensor above = at::threshold_backward(gradient, x, 0), below = gradient - above;
  put(above + below * tensor(call, 2), call);
  put(below * x, call, 1);
}

// glu(x, dim): the first half times the sigmoid of the second
void gate(const Call& call) {
  const std::vector<at::Tensor> halves = tensor(call, 0).chunk(2, call.arguments[1].toInt());
  put(halves[0] * halves[1].sigmoid(), call);
}
// glu_backward(gradient, x, dim)
void gate_gradient(const Call& call) {
  const at::Tensor& gradient = tensor(call, 0);
  const std::int64_t side = call.arguments[2].toInt();
  const std::vector<at::Tensor> halves = tensor(call, 1).chunk(2, side),
                                made = result(call).chunk(2, side);
  const at::Tensor open = halves[1].sigmoid();
  made[0].copy_(gradient * open);
  made[1].copy_(at::sigmoid_backward(gradient * halves[0], open));
}

// linalg_vector_norm(x, order, dims?, keepdim, dtype?)
bool length(Lowering& lower, const Call& call) {
  if (call.arguments[1].toScalar().toDouble() != 2 || !call.arguments[2].isIntList()) return false;
  const at::Tensor& x = tensor(call, 0);
  return lower.compose([&] {
    put((x * x).sum(call.arguments[2].toIntVector(), call.arguments[3].toBool()).sqrt(), call);
  });
}

// stack(tensors, dim)
void stack(const Call& call) {
  const std::int64_t side = call.arguments[1].toInt();
  std::vector<at::Tensor> parts = call.arguments[0].toTensorVector();
  for (at::Tensor& part : parts) part = part.unsqueeze(side < 0 ? side + result(call).dim() : side);
  put(at::cat(parts, side), call);
}

// huber_loss(x, target, reduction, delta)
void huber(const Call& call) {
  const at::Tensor size = (tensor(call, 0) - tensor(call, 1)).abs();
  const at::Tensor near = at::hardtanh(size, 0, call.arguments[3].toScalar());
  const at::Tensor losses = near * (size - near * 0.5);
  const std::int64_t reduction = call.arguments[2].toInt();
  put(reduction == at::Reduction::Mean  ? losses.mean()
      : reduction == at::Reduction::Sum ? losses.sum()
                                        : losses,
      call);
}
// huber_loss_backward(gradient, x, target, reduction, delta)
void huber_gradient(const Call& call) {
  const at::Tensor difference = tensor(call, 1) - tensor(call, 2);
  const double delta = call.arguments[4].toScalar().toDouble();
  const bool mean = call.arguments[3].toInt() == at::Reduction::Mean;
  put(at::hardtanh(difference, -delta, delta) * tensor(call, 0) *
          (mean ? 1.0 / double(difference.numel()) : 1.0),
      call);
}

// roll(x, shifts[], dims[])
void roll(const Call& call) {
  at::Tensor x = tensor(call, 0);
  const std::vector<std::int64_t> shifts = call.arguments[1].toIntVector(),
                                  sides = call.arguments[2].toIntVector();
  if (sides.empty()) x = x.flatten();
  for (std::size_t i = 0; i < shifts.size(); ++i) {
    const std::int64_t side = sides.empty() ? 0 : sides[i], size = x.size(side),
                       shift = (shifts[i] % size + size) % size;
    x = at::cat({x.narrow(side, size - shift, shift), x.narrow(side, 0, size - shift)}, side);
  }
  put(x.view(result(call).sizes()), call);
}

// repeat(x, times[])
void repeat(const Call& call) {
  at::Tensor x = tensor(call, 0);
  const std::vector<std::int64_t> times = call.arguments[1].toIntVector();
  while (x.dim() < std::int64_t(times.size())) x = x.unsqueeze(0);
  for (std::size_t d = 0; d < times.size(); ++d) {
    if (times[d] > 1)
      x = at::cat(std::vector<at::Tensor>(std::size_t(times[d]), x), std::int64_t(d));
  }
  put(x, call);
}

// constant_pad_nd(x, pads[], value): before and after, from the last dimension on; negative ones
// cut off
bool pad(Lowering& lower, const Call& call) {
  if (call.arguments[2].toScalar().toDouble() != 0) return false;
  return lower.compose([&] {
    at::Tensor from = tensor(call, 0), to = result(call);
    to.zero_();
    const std::vector<std::int64_t> pads = call.arguments[1].toIntVector();
    for (std::size_t i = 0; i < pads.size(); ++i) {
      const std::int64_t side = from.dim() - 1 - std::int64_t(i) / 2, less = std::abs(pads[i]);
      at::Tensor& longer = pads[i] < 0 ? from : to;
      longer = longer.narrow(side, i % 2 == 0 ? less : 0, longer.size(side) - less);
    }
    to.copy_(from);
  });
}

/// The gradient in a part of zeros.
template <class PartOf>
void put_in_part(const Call& call, const PartOf& part_of) {
  at::Tensor made = result(call);
  made.zero_();
  part_of(made).copy_(tensor(call, 0));
}
// select_backward(gradient, sizes[], dim, index)
void select_gradient(const Call& call) {
  put_in_part(call, [&](const at::Tensor& made) {
    return made.select(call.arguments[2].toInt(), call.arguments[3].toInt());
  });
}
// slice_backward(gradient, sizes[], dim, begin, end, step)
void slice_gradient(const Call& call) {
  const auto number = [&](std::size_t i) { return call.arguments[i].toInt(); };
  put_in_part(call, [&](const at::Tensor& made) {
    return made.slice(number(2), number(3), number(4), number(5));
  });
}

/// Copies pictures [C r r, H, W] to [C, H r, W r] or back.
template <bool kToPixels>
bool shuffle(Lowering& lower, const Call& call) {
  const std::int64_t r = call.arguments[1].toInt();
  const at::Tensor &x = tensor(call, 0), &made = result(call);
  const at::Tensor &deep = kToPixels ? x : made, &wide = kToPixels ? made : x;
  return x.dim() == 4 && lower.compose([&] {
    for (std::int64_t i = 0; i < deep.size(0); ++i) {
      at::Tensor channels = deep[i].unflatten(0, {-1, r, r}).permute({0, 3, 1, 4, 2}),
                 pixels = wide[i].unflatten(1, {-1, r}).unflatten(3, {-1, r});
      kToPixels ? pixels.copy_(channels) : channels.copy_(pixels);
    }
  });
}

/// Attention's arguments q, k, v from `first` on.
struct Attention {
  at::Tensor q, k, v, shares;
  double scale;
  Attention(const Call& call, std::size_t first)
      : q(tensor(call, first)), k(tensor(call, first + 1)), v(tensor(call, first + 2)) {
    const c10::IValue& given = call.arguments.back();
    scale = given.isNone() ? 1 / std::sqrt(double(q.size(-1))) : given.toDouble();
    for (at::Tensor* const t : {&q, &k, &v}) *t = t->flatten(0, 1).contiguous();
    shares = (q.bmm(k.transpose(1, 2)) * scale).softmax(-1);
  }
};
/// `queries`, `dropout`: places among the arguments.
bool is_plain(const Call& call, std::size_t queries, std::size_t dropout) {
  return tensor(call, queries).size(1) == tensor(call, queries + 1).size(1) &&
         call.arguments[dropout].toDouble() == 0 && !call.arguments[dropout + 1].toBool() &&
         !optional(call, dropout + 2).defined();
}
// _scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal, mask?, scale?) -> (made,
// logarithms, which only the gradient reads)
bool attention(Lowering& lower, const Call& call) {
  return is_plain(call, 0, 3) && lower.compose([&] {
    const Attention of(call, 0);
    put(of.shares.bmm(of.v).view(result(call).sizes()), call);
  });
}
// _scaled_dot_product_flash_attention_for_cpu_backward(gradient, q, k, v, made, logarithms,
// dropout, causal, mask?, scale?)
bool attention_gradient(Lowering& lower, const Call& call) {
  return is_plain(call, 1, 6) && lower.compose([&] {
    const Attention of(call, 1);
    const at::Tensor gradient = tensor(call, 0).flatten(0, 1).contiguous();
    const at::Tensor scores =
        at::_softmax_backward_data(gradient.bmm(of.v.transpose(1, 2)), of.shares, -1, at::kFloat) *
        of.scale;
    put(scores.bmm(of.k).view(result(call).sizes()), call);
    put(scores.transpose(1, 2).bmm(of.q).view(result(call, 1).sizes()), call, 1);
    put(of.shares.transpose(1, 2).bmm(gradient).view(result(call, 2).sizes()), call, 2);
  });
}

}  // namespace

const Rules compositions_rules = {
    {"aten::bmm", {composed(products).lower, false}},
    {"aten::pow", {power}},
    {"aten::clamp", {clamp}},
    {"aten::clamp_min", {clamp}},
    {"aten::_prelu_kernel_backward", composed(prelu_gradient)},
    {"aten::glu", composed(gate)},
    {"aten::glu_backward", composed(gate_gradient)},
    {"aten::linalg_vector_norm", {length}},
    {"aten::huber_loss", composed(huber)},
    {"aten::huber_loss_backward", composed(huber_gradient)},
    {"aten::stack", composed(stack)},
    {"aten::roll", composed(roll)},
    {"aten::repeat", composed(repeat)},
    {"aten::constant_pad_nd", {pad}},
    {"aten::select_backward", composed(select_gradient)},
    {"aten::slice_backward", composed(slice_gradient)},
    {"aten::pixel_shuffle", {shuffle<true>}},
    {"aten::pixel_unshuffle", {shuffle<false>}},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", {attention, false}},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", {attention_gradient, false}},
};

}  // namespace millrace::program
