#include <ATen/ATen.h>

#include <algorithm>

#include "capture/program/lower/lowering.h"

namespace millrace::program {
namespace {

bool is_mean(const c10::IValue& reduction) {
  return reduction.toInt() == at::Reduction::Mean;
}
bool mse_loss(Lowering& lower, const Call& call) {
  const at::Tensor &prediction = tensor(call, 0), &target = tensor(call, 1);
  if (!are_pictures(prediction, target) || prediction.sizes() != target.sizes() ||
      !is_mean(call.arguments[2]))
    return false;
  const at::Tensor from = lower.read(prediction), to = lower.read(target);
  return lower.add({.kind = Kind::mse, .reads = {from, to}, .writes = {result(call)}});
}
bool mse_loss_backward(Lowering& lower, const Call& call) {
  const at::Tensor &scale = tensor(call, 0), &prediction = tensor(call, 1),
                   &target = tensor(call, 2), &made = result(call);
  if (scale.numel() != 1 || !is_dense(scale) || !are_pictures(prediction, target, made) ||
      prediction.sizes() != target.sizes() || !is_mean(call.arguments[3]))
    return false;
  const at::Tensor from = lower.read(prediction), to = lower.read(target);
  return lower.add_image(made, {.kind = Kind::mse, .gradient = true, .reads = {scale, from, to}});
}

kernels::GroupNorm norm_of(const at::Tensor& x, std::int64_t groups, double eps = 0,
                           bool frozen = false) {
  return {.pixels = std::size_t(x.size(2) * x.size(3)),
          .channels = int(x.size(1)),
          .groups = int(groups),
          .eps = eps,
          .frozen = frozen};
}

/// For a call (input, weight?, bias?, ..., eps as its argument 7) that returns its statistics.
bool norm_of_groups(Lowering& lower, const Call& call, std::int64_t groups) {
  const at::Tensor &x = tensor(call, 0), &y = result(call, 0);
  const at::Tensor weight = optional(call, 1), bias = optional(call, 2);
  if (!are_pictures(x, y) || !are_plain(weight, bias)) return false;
  return lower.add_image(y, {.kind = Kind::group_norm,
                             .reads = {lower.read(x), weight, bias},
                             .writes = {result(call, 1), result(call, 2)},
                             .norm = norm_of(x, groups, call.arguments[7].toDouble())});
}

// native_group_norm(input, weight?, bias?, N, C, HxW, groups, eps)
bool group_norm(Lowering& lower, const Call& call) {
  return norm_of_groups(lower, call, call.arguments[6].toInt());
}

// native_batch_norm(input, weight?, bias?, mean?, variance?, training, momentum, eps). Of one
// picture's own statistics it is an instance norm, as nn.InstanceNorm2d calls it.
bool batch_norm(Lowering& lower, const Call& call) {
  const at::Tensor &x = tensor(call, 0), &y = result(call, 0);
  const at::Tensor weight = optional(call, 1), bias = optional(call, 2), mean = optional(call, 3),
                   variance = optional(call, 4);
  if (call.arguments[5].toBool()) {
    return !mean.defined() && !variance.defined() && call.name() == "aten::native_batch_norm" &&
           x.dim() > 1 && norm_of_groups(lower, call, x.size(1));
  }
  if (!mean.defined() || !variance.defined() || !are_pictures(x, y) ||
      !are_plain(weight, bias, mean, variance))
    return false;
  return lower.add_image(y, {.kind = Kind::group_norm,
                             .reads = {lower.read(x), weight, bias, mean, variance},
                             .norm = norm_of(x, x.size(1), call.arguments[7].toDouble(), true)});
}

/// For {dy, x} and statistics and weight, either of which may be undefined.
bool norm_backward(Lowering& lower, const Call& call, const at::Tensor& mean,
                   const at::Tensor& rstd, const at::Tensor& weight,
                   const kernels::GroupNorm& norm) {
  const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &dx = result(call, 0),
                   &dw = result(call, 1), &db = result(call, 2);
  if (!mean.defined() || !rstd.defined() || !are_pictures(dy, x) ||
      (dx.defined() && !is_picture(dx)) || !are_plain(mean, rstd, weight, dw, db))
    return false;
  const at::Tensor gradient = lower.read(dy), from = lower.read(x);
  return lower.add_image(dx, {.kind = Kind::group_norm,
                              .gradient = true,
                              .reads = {gradient, from, mean, rstd, weight},
                              .writes = {dw, db},
                              .norm = norm});
}

// native_group_norm_backward(gradient, input, mean, rstd, weight?, N, C, HxW, groups, mask)
bool group_norm_backward(Lowering& lower, const Call& call) {
  return norm_backward(lower, call, tensor(call, 2), tensor(call, 3), optional(call, 4),
                       norm_of(tensor(call, 1), call.arguments[8].toInt()));
}

// native_batch_norm_backward(gradient, input, weight?, mean?, variance?, saved mean, saved rstd,
// training, eps, mask)
bool batch_norm_backward(Lowering& lower, const Call& call) {
  const at::Tensor& x = tensor(call, 1);
  const bool own = call.arguments[7].toBool();  // statistics
  if (own && (optional(call, 3).defined() || optional(call, 4).defined())) return false;
  const std::size_t statistics = own ? 5 : 3;
  return norm_backward(lower, call, optional(call, statistics), optional(call, statistics + 1),
                       optional(call, 2),
                       norm_of(x, x.size(1), call.arguments[8].toDouble(), !own));
}

kernels::Matrix rows_of(const at::Tensor& x, const c10::IValue& normalized_shape) {
  std::int64_t row = 1;
  for (const std::int64_t size : normalized_shape.toIntVector()) row *= size;
  return {std::size_t(x.numel() / row), std::size_t(row)};
}

// native_layer_norm(input, normalized_shape, weight?, bias?, eps)
bool layer_norm(Lowering& lower, const Call& call) {
  const at::Tensor &x = tensor(call, 0), &y = result(call);
  const at::Tensor weight = optional(call, 2), bias = optional(call, 3);
  return are_plain(x, y, weight, bias) &&
         lower.add({.kind = Kind::layer_norm,
                    .reads = {x, weight, bias},
                    .writes = {y, result(call, 1), result(call, 2)},
                    .norm = {.eps = call.arguments[4].toDouble()},
                    .matrix = rows_of(x, call.arguments[1])});
}
// native_layer_norm_backward(gradient, input, normalized_shape, mean, rstd, weight?, bias?, mask)
bool layer_norm_backward(Lowering& lower, const Call& call) {
  const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &dx = result(call, 0),
                   &dw = result(call, 1), &db = result(call, 2);
  const at::Tensor weight = optional(call, 5);
  if (!is_copyable(dy) || !are_plain(x, dx, dw, db, weight)) return false;
  return lower.add({.kind = Kind::layer_norm,
                    .gradient = true,
                    .reads = {lower.contiguous(dy), x, tensor(call, 3), tensor(call, 4), weight},
                    .writes = {dx, dw, db},
                    .matrix = rows_of(x, call.arguments[2])});
}

// _softmax(x, dim, half_to_float), _log_softmax alike, and
// _softmax_backward_data(gradient, made, dim, dtype)
bool softmax(Lowering& lower, const Call& call) {
  const bool gradient = call.name().ends_with("_backward_data");
  const std::size_t operands = gradient ? 2 : 1;
  const at::Tensor& made = result(call);
  const std::int64_t side = call.arguments[operands].toInt();
  std::vector<at::Tensor> reads;
  for (std::size_t i = 0; i < operands; ++i) reads.push_back(tensor(call, i));
  if (!are_plain(made) || made.dim() == 0 || made.numel() == 0 ||
      (side != made.dim() - 1 && side != -1) ||
      !std::all_of(reads.begin(), reads.end(), is_copyable))
    return false;
  for (at::Tensor& each : reads) each = lower.contiguous(each);
  const auto row = std::size_t(made.size(-1));
  return lower.add({.kind = Kind::softmax,
                    .gradient = gradient,
                    .reads = std::move(reads),
                    .writes = {made},
                    .matrix = {std::size_t(made.numel()) / row, row},
                    .logarithm = call.name().starts_with("aten::_log")});
}

}  // namespace

const Rules norm_rules = {
    {"aten::mse_loss", {mse_loss}},
    {"aten::mse_loss_backward", {mse_loss_backward}},
    {"aten::native_group_norm", {group_norm}},
    {"aten::native_group_norm_backward", {group_norm_backward}},
    {"aten::native_batch_norm", {batch_norm}},
    {"aten::cudnn_batch_norm", {batch_norm}},  // the same arguments
    {"aten::native_batch_norm_backward", {batch_norm_backward}},
    {"aten::native_layer_norm", {layer_norm}},
    {"aten::native_layer_norm_backward", {layer_norm_backward}},
    {"aten::_softmax", {softmax}},
    {"aten::_log_softmax", {softmax}},
    {"aten::_softmax_backward_data", {softmax}},
    {"aten::_log_softmax_backward_data", {softmax}},
};

}  // namespace millrace::program
