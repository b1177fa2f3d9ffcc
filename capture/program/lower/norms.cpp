// Lowers norms, softmax and the mean squared error.
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
  if (!is_picture(prediction) || !is_picture(target) || prediction.sizes() != target.sizes() ||
      !is_mean(call.arguments[2]))
    return false;
  const at::Tensor from = lower.read(prediction), to = lower.read(target);
  lower.add(Kind::mse, {from, to}, {result(call)});
  return true;
}
bool mse_loss_backward(Lowering& lower, const Call& call) {
  const at::Tensor &scale = tensor(call, 0), &prediction = tensor(call, 1),
                   &target = tensor(call, 2), &made = result(call);
  if (scale.numel() != 1 || !is_dense(scale) || !is_picture(prediction) || !is_picture(target) ||
      !is_picture(made) || prediction.sizes() != target.sizes() || !is_mean(call.arguments[3]))
    return false;
  const at::Tensor from = lower.read(prediction), to = lower.read(target),
                   image = lower.image_for(made);
  lower.add(Kind::mse_gradient, {scale, from, to}, {image});
  lower.written(made, image);
  return true;
}

kernels::GroupNorm norm_of(const at::Tensor& x, std::int64_t groups, double eps = 0,
                           bool frozen = false) {
  return {.pixels = std::size_t(x.size(2) * x.size(3)),
          .channels = int(x.size(1)),
          .groups = int(groups),
          .eps = eps,
          .frozen = frozen};
}

// native_group_norm(input, weight?, bias?, N, C, HxW, groups, eps)
bool group_norm(Lowering& lower, const Call& call) {
  const at::Tensor &x = tensor(call, 0), &y = result(call, 0);
  const at::Tensor weight = optional(call, 1), bias = optional(call, 2);
  if (!is_picture(x) || !is_picture(y) || !is_plain(weight) || !is_plain(bias)) return false;
  const at::Tensor from = lower.read(x), image = lower.image_for(y);
  lower.add(Kind::group_norm, {from, weight, bias}, {image, result(call, 1), result(call, 2)})
      .norm = norm_of(x, call.arguments[6].toInt(), call.arguments[7].toDouble());
  lower.written(y, image);
  return true;
}

// native_group_norm_backward(gradient, input, mean, rstd, weight?, N, C, HxW, groups, mask)
bool group_norm_backward(Lowering& lower, const Call& call) {
  const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &dx = result(call, 0),
                   &dw = result(call, 1), &db = result(call, 2);
  const at::Tensor weight = optional(call, 4);
  if (!is_picture(dy) || !is_picture(x) || (dx.defined() && !is_picture(dx)) || !is_plain(weight) ||
      !is_plain(dw) || !is_plain(db))
    return false;
  const at::Tensor gradient = lower.read(dy), from = lower.read(x),
                   image = dx.defined() ? lower.image_for(dx) : at::Tensor();
  lower
      .add(Kind::group_norm_gradient, {gradient, from, tensor(call, 2), tensor(call, 3), weight},
           {image, dw, db})
      .norm = norm_of(x, call.arguments[8].toInt());
  if (dx.defined()) lower.written(dx, image);
  return true;
}

// native_batch_norm(input, weight?, bias?, mean?, variance?, training, momentum, eps)
bool batch_norm(Lowering& lower, const Call& call) {
  const at::Tensor &x = tensor(call, 0), &y = result(call, 0);
  const at::Tensor weight = optional(call, 1), bias = optional(call, 2), mean = optional(call, 3),
                   variance = optional(call, 4);
  if (call.arguments[5].toBool() || !mean.defined() || !variance.defined() || !is_picture(x) ||
      !is_picture(y) || !is_plain(weight) || !is_plain(bias) || !is_plain(mean) ||
      !is_plain(variance))
    return false;
  const at::Tensor from = lower.read(x), image = lower.image_for(y);
  lower.add(Kind::frozen_norm, {from, weight, bias, mean, variance}, {image}).norm =
      norm_of(x, x.size(1), call.arguments[7].toDouble(), true);
  lower.written(y, image);
  return true;
}

// native_batch_norm_backward(gradient, input, weight?, mean?, variance?, saved mean, saved rstd,
// training, eps, mask)
bool batch_norm_backward(Lowering& lower, const Call& call) {
  const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &dx = result(call, 0),
                   &dw = result(call, 1), &db = result(call, 2);
  const at::Tensor weight = optional(call, 2), mean = optional(call, 3),
                   variance = optional(call, 4);
  if (call.arguments[7].toBool() || !mean.defined() || !variance.defined() || !is_picture(dy) ||
      !is_picture(x) || (dx.defined() && !is_picture(dx)) || !is_plain(weight) || !is_plain(mean) ||
      !is_plain(variance) || !is_plain(dw) || !is_plain(db))
    return false;
  const at::Tensor gradient = lower.read(dy), from = lower.read(x),
                   image = dx.defined() ? lower.image_for(dx) : at::Tensor();
  lower.add(Kind::frozen_norm_gradient, {gradient, from, mean, variance, weight}, {image, dw, db})
      .norm = norm_of(x, x.size(1), call.arguments[8].toDouble(), true);
  if (dx.defined()) lower.written(dx, image);
  return true;
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
  if (!is_plain(x) || !is_plain(y) || !is_plain(weight) || !is_plain(bias)) return false;
  Node& node =
      lower.add(Kind::layer_norm, {x, weight, bias}, {y, result(call, 1), result(call, 2)});
  node.matrix = rows_of(x, call.arguments[1]);
  node.norm.eps = call.arguments[4].toDouble();
  return true;
}
// native_layer_norm_backward(gradient, input, normalized_shape, mean, rstd, weight?, bias?, mask)
bool layer_norm_backward(Lowering& lower, const Call& call) {
  const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &dx = result(call, 0),
                   &dw = result(call, 1), &db = result(call, 2);
  const at::Tensor weight = optional(call, 5);
  if (!is_copyable(dy) || !is_plain(x) || !is_plain(dx) || !is_plain(dw) || !is_plain(db) ||
      !is_plain(weight))
    return false;
  const at::Tensor gradient = lower.contiguous(dy);
  lower
      .add(Kind::layer_norm_gradient, {gradient, x, tensor(call, 3), tensor(call, 4), weight},
           {dx, dw, db})
      .matrix = rows_of(x, call.arguments[2]);
  return true;
}
bool softmax_of_rows(Lowering& lower, const Call& call, Kind kind, std::size_t operands) {
  const at::Tensor& made = result(call);
  const std::int64_t side = call.arguments[operands].toInt();
  std::vector<at::Tensor> reads;
  for (std::size_t i = 0; i < operands; ++i) reads.push_back(tensor(call, i));
  if (!is_plain(made) || made.dim() == 0 || made.numel() == 0 ||
      (side != made.dim() - 1 && side != -1) ||
      !std::all_of(reads.begin(), reads.end(), is_copyable))
    return false;
  for (at::Tensor& each : reads) each = lower.contiguous(each);
  const auto row = std::size_t(made.size(-1));
  Node& node = lower.add(kind, std::move(reads), {made});
  node.matrix = {std::size_t(made.numel()) / row, row};
  node.logarithm = call.name().starts_with("aten::_log");
  return true;
}

// _softmax(x, dim, half_to_float), _log_softmax alike, and
// _softmax_backward_data(gradient, made, dim, dtype)
bool softmax(Lowering& lower, const Call& call) {
  return softmax_of_rows(lower, call, Kind::softmax, 1);
}
bool softmax_backward(Lowering& lower, const Call& call) {
  return softmax_of_rows(lower, call, Kind::softmax_gradient, 2);
}

}  // namespace

const Rules& norm_rules() {
  static const Rules rules = {
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
      {"aten::_softmax_backward_data", {softmax_backward}},
      {"aten::_log_softmax_backward_data", {softmax_backward}},
  };
  return rules;
}

}  // namespace millrace::program
