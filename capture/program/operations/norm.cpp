// Group norm of a picture and layer norm of rows: {x, weight, bias} -> {y, mean, rstd}, where
// weight and bias may be undefined. Frozen, as batch norm in eval mode: {x, weight, bias, mean,
// variance} -> {y}. Gradient: {dy, x, mean, rstd or variance, weight} -> {dx, dw, db}, each of
// which may be undefined.
#include <ATen/ATen.h>

#include <algorithm>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

using kernels::NormArguments;

constexpr int kSlice = 8192;  ///< least elements per block
constexpr int kMostSlices = 128;
constexpr int kBlock = 512, kSmallBlock = 128;  ///< threads; the latter for groups up to kSmall
constexpr int kSmall = 1024;

int threads_for(int size) {
  return size <= kSmall ? kSmallBlock : kBlock;
}
GpuKernel kernel(const std::string& name, const char* how, int floats_each, int threads,
                 int blocks) {
  const std::string mode = how ? std::string("millrace::gpu::Norm::") + how + ", " : "";
  return {name + "<" + mode + numbers(floats_each, threads) + ">", threads, blocks,
          std::size_t(2 * threads)};
}

/// \param on_gpu(node, floats): the kernels, where each thread takes so many floats at once.
template <class Run, class OnGpu>
Operation norm_of(const std::string& kind, const NormArguments& norm, bool gradient, const Run& run,
                  const std::vector<bool>& phases, std::size_t blocks, const OnGpu& on_gpu) {
  const auto bind = [=](const Node& node, char* scratch) {
    NormArguments n = norm;
    n.parts = reinterpret_cast<kernels::NormPart*>(scratch);
    if (gradient) {
      point_at(node.reads, n.gradient, n.source, n.mean, n.rstd, n.weight);
      point_at(node.writes, n.destination, n.weight_gradient, n.bias_gradient);
    } else if (norm.frozen) {
      point_at(node.reads, n.source, n.weight, n.bias, n.mean, n.rstd);
      point_at(node.writes, n.destination);
    } else {
      point_at(node.reads, n.source, n.weight, n.bias);
      point_at(node.writes, n.destination, n.mean, n.rstd);
    }
    return n;
  };
  const auto kernels = [=](const Node& node) {
    bool fours = norm.pixels % 4 == 0;
    for (const at::Tensor& t :
         {node.reads[0], gradient ? node.reads[1] : at::Tensor(), node.writes[0]})
      fours = fours && (!t.defined() || holds_fours(floats(t)));
    return gpu_call(on_gpu(node, fours ? 4 : 1), bind, blocks * sizeof(kernels::NormPart))(node);
  };
  const std::size_t scratch = 2 * std::size_t(norm.groups * norm.weights);
  return {.name = kind + (gradient ? " gradient" : ""),
          .on_cores = core_call(bind, run, phases, scratch * sizeof(kernels::NormPart)),
          .on_gpu = kernels};
}

Operation group_norm_of(NormArguments n, bool gradient, const at::Tensor& x) {
  const std::string kind = n.frozen         ? "batch norm "
                           : n.weights == 1 ? "instance norm "
                                            : "group norm ";
  n.slices = std::min(gpu::divided_up(gradient ? n.pixels : n.size, kSlice), kMostSlices);
  const int blocks = n.groups * n.slices * (gradient ? n.weights : 1);
  const auto on_gpu = [=](const Node&, int each) -> std::vector<GpuKernel> {
    const char* const how = n.frozen ? "frozen" : "in_parts";
    const std::string name = gradient ? "norm_gradient" : "norm";
    if (!gradient && !n.frozen && n.slices == 1)
      return {kernel(name, "whole", each, threads_for(n.size), blocks)};
    const int threads = gradient ? threads_for(n.pixels) : kBlock;
    std::vector<GpuKernel> all = {kernel(name, how, each, threads, blocks)};
    if (gradient || !n.frozen)
      all.insert(all.begin(), kernel(name + "_parts", nullptr, each, threads, blocks));
    return all;
  };
  return norm_of(kind + text_of(layout_of(x)), n, gradient,
                 gradient ? kernels::group_norm_gradient : kernels::group_norm, {true, false, true},
                 std::size_t(blocks), on_gpu);
}

Operation layer_norm_of(const NormArguments& n, bool gradient) {
  const auto run = [=](const NormArguments& bound, int, kernels::Share share) {
    (gradient ? kernels::layer_norm_gradient : kernels::layer_norm)(bound, share);
  };
  const auto on_gpu = [=](const Node& node, int each) {
    std::vector<GpuKernel> all;
    if (node.writes[0].defined())
      all.push_back(kernel(gradient ? "norm_gradient" : "norm", "whole", each, threads_for(n.size),
                           n.groups));
    if (gradient && (node.writes[1].defined() || node.writes[2].defined()))
      all.push_back({"layer_norm_weight_gradients", gpu::kSumThreads,
                     gpu::divided_up(n.size, gpu::kColumns), gpu::kSumThreads});
    return all;
  };
  return norm_of("layer norm", n, gradient, run, {true}, 0, on_gpu);
}

// ---- Rules.

/// For one sample [1,C,...].
NormArguments groups_of(const at::Tensor& x, std::int64_t groups, double eps = 0,
                        bool frozen = false) {
  const int pixels = int(x.numel() / x.size(1)), weights = int(x.size(1) / groups);
  return {.eps = eps,
          .groups = int(groups),
          .size = weights * pixels,
          .pixels = pixels,
          .weights = weights,
          .frozen = frozen};
}

/// For a call (input, weight?, bias?, ..., eps as its argument 7) that returns its statistics.
bool norm_of_groups(Lowering& lower, const Call& call, std::int64_t groups) {
  const at::Tensor &x = tensor(call, 0), &y = result(call, 0);
  const at::Tensor weight = optional(call, 1), bias = optional(call, 2);
  if (!are_pictures(x, y) || !are_plain(weight, bias)) return false;
  return lower.add_image(
      y, group_norm_of(groups_of(x, groups, call.arguments[7].toDouble()), false, x),
      {lower.read(x), weight, bias}, {result(call, 1), result(call, 2)});
}

// native_group_norm(input, weight?, bias?, N, C, HxW, groups, eps)
bool group_norm(Lowering& lower, const Call& call) {
  return norm_of_groups(lower, call, call.arguments[6].toInt());
}

// native_batch_norm(input, weight?, bias?, mean?, variance?, training, momentum, eps). With one
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
  return lower.add_image(
      y, group_norm_of(groups_of(x, x.size(1), call.arguments[7].toDouble(), true), false, x),
      {lower.read(x), weight, bias, mean, variance});
}

/// For {dy, x} and statistics and weight, either of which may be undefined.
bool norm_backward(Lowering& lower, const Call& call, const at::Tensor& mean,
                   const at::Tensor& rstd, const at::Tensor& weight, const NormArguments& norm) {
  const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &dx = result(call, 0),
                   &dw = result(call, 1), &db = result(call, 2);
  if (!mean.defined() || !rstd.defined() || !are_pictures(dy, x) ||
      (dx.defined() && !is_picture(dx)) || !are_plain(mean, rstd, weight, dw, db))
    return false;
  const at::Tensor gradient = lower.read(dy), from = lower.read(x);
  return lower.add_image(dx, group_norm_of(norm, true, x), {gradient, from, mean, rstd, weight},
                         {dw, db});
}

// native_group_norm_backward(gradient, input, mean, rstd, weight?, N, C, HxW, groups, mask)
bool group_norm_backward(Lowering& lower, const Call& call) {
  return norm_backward(lower, call, tensor(call, 2), tensor(call, 3), optional(call, 4),
                       groups_of(tensor(call, 1), call.arguments[8].toInt()));
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
                       groups_of(x, x.size(1), call.arguments[8].toDouble(), !own));
}

NormArguments rows_of(const at::Tensor& x, const c10::IValue& normalized_shape, double eps = 0) {
  std::int64_t row = 1;
  for (const std::int64_t size : normalized_shape.toIntVector()) row *= size;
  return {.eps = eps, .groups = int(x.numel() / row), .size = int(row)};
}

// native_layer_norm(input, normalized_shape, weight?, bias?, eps)
bool layer_norm(Lowering& lower, const Call& call) {
  const at::Tensor &x = tensor(call, 0), &y = result(call);
  const at::Tensor weight = optional(call, 2), bias = optional(call, 3);
  return is_copyable(x) && are_plain(y, weight, bias) &&
         lower.add(
             layer_norm_of(rows_of(x, call.arguments[1], call.arguments[4].toDouble()), false),
             {lower.contiguous(x), weight, bias}, {y, result(call, 1), result(call, 2)});
}
// native_layer_norm_backward(gradient, input, normalized_shape, mean, rstd, weight?, bias?, mask)
bool layer_norm_backward(Lowering& lower, const Call& call) {
  const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &dx = result(call, 0),
                   &dw = result(call, 1), &db = result(call, 2);
  const at::Tensor weight = optional(call, 5);
  if (!is_copyable(dy) || !is_copyable(x) || !are_plain(dx, dw, db, weight)) return false;
  return lower.add(
      layer_norm_of(rows_of(x, call.arguments[2]), true),
      {lower.contiguous(dy), lower.contiguous(x), tensor(call, 3), tensor(call, 4), weight},
      {dx, dw, db});
}

}  // namespace

const Rules norm_rules = {
    {"aten::native_group_norm", {group_norm}},
    {"aten::native_group_norm_backward", {group_norm_backward}},
    {"aten::native_batch_norm", {batch_norm}},
    {"aten::cudnn_batch_norm", {batch_norm}},  // the same arguments
    {"aten::native_batch_norm_backward", {batch_norm_backward}},
    {"aten::native_layer_norm", {layer_norm}},
    {"aten::native_layer_norm_backward", {layer_norm_backward}},
};

}  // namespace millrace::program
