// Group norm of a picture and layer norm of rows: {x, weight, bias} -> {y, mean, rstd}, where
// weight and bias may be undefined. Frozen, as batch norm in eval mode: {x, weight, bias, mean,
// variance} -> {y}. Gradient: {dy, x, mean, rstd or variance, weight} -> {dx, dw, db}, each of
// which may be undefined.
#include <ATen/ATen.h>

#include <algorithm>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

template <class Operands>
void bind_norm(const Node& node, bool gradient, bool frozen, Operands& made) {
  const std::vector<at::Tensor>&reads = node.reads, &writes = node.writes;
  made.destination = floats(writes[0]);
  if (gradient) {
    made.gradient = floats(reads[0]);
    made.source = floats(reads[1]);
    made.mean = floats(reads[2]);
    made.rstd = floats(reads[3]);
    made.weight = floats(reads[4]);
    made.weight_gradient = floats(writes[1]);
    made.bias_gradient = floats(writes[2]);
  } else {
    made.source = floats(reads[0]);
    made.weight = floats(reads[1]);
    made.bias = floats(reads[2]);
    made.mean = floats(frozen ? reads[3] : writes[1]);
    made.rstd = floats(frozen ? reads[4] : writes[2]);
  }
}

/// Norms of groups or rows, with `Run`'s phases on cores.
class CoreNorm final : public Prepared {
 public:
  using Run = std::function<void(const kernels::GroupNormOperands&, int, kernels::Share)>;
  CoreNorm(bool gradient, const kernels::GroupNorm& norm, std::vector<bool> phases, Run run)
      : gradient_(gradient), norm_(norm), phases_(std::move(phases)), run_(std::move(run)) {
    info.kernel = kernels::instruction_set();
  }
  std::size_t scratch_bytes() const override { return norm_.scratch() * sizeof(double); }
  void bind(const Node& node, char* scratch) override {
    bind_norm(node, gradient_, norm_.frozen, operands_);
    operands_.scratch = reinterpret_cast<double*>(scratch);
  }
  std::vector<bool> phases() const override { return phases_; }
  void run(int phase, kernels::Share share) override { run_(operands_, phase, share); }

 private:
  const bool gradient_;
  const kernels::GroupNorm norm_;
  const std::vector<bool> phases_;
  const Run run_;
  kernels::GroupNormOperands operands_;
};

Operation::OnCores on_cores(bool gradient, const kernels::GroupNorm& norm,
                            const std::vector<bool>& phases, const CoreNorm::Run& run) {
  return [=](const Node&, int) { return std::make_unique<CoreNorm>(gradient, norm, phases, run); };
}

// ---- On a GPU.

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

/// \param kernels of a node, where each thread takes so many floats at once.
template <class Kernels>
Operation::OnGpu gpu_norm(const gpu::NormArguments& norm, bool gradient, bool frozen,
                          std::size_t parts, const Kernels& kernels) {
  const auto bind = [=](const Node& of, char* scratch) {
    gpu::NormArguments bound = norm;
    bound.parts = reinterpret_cast<gpu::NormPart*>(scratch);
    bind_norm(of, gradient, frozen, bound);
    return bound;
  };
  return [=](const Node& node) {
    bool fours = norm.pixels % 4 == 0;
    for (const at::Tensor& t :
         {node.reads[0], gradient ? node.reads[1] : at::Tensor(), node.writes[0]})
      fours = fours && (!t.defined() || holds_fours(floats(t)));
    return gpu_call(kernels(node, fours ? 4 : 1), bind, parts * sizeof(gpu::NormPart))(node);
  };
}

Operation group_norm_of(const kernels::GroupNorm& norm, bool gradient, const at::Tensor& x) {
  const std::string kind = norm.frozen                    ? "batch norm "
                           : norm.groups == norm.channels ? "instance norm "
                                                          : "group norm ";
  const auto compute = [=](const auto& operands, int phase, kernels::Share share) {
    gradient ? kernels::group_norm_gradient(norm, operands, phase, share)
             : kernels::group_norm(norm, operands, phase, share);
  };
  gpu::NormArguments n{.eps = norm.eps, .groups = norm.groups, .pixels = int(norm.pixels)};
  n.weights = norm.channels / n.groups;
  n.size = n.weights * n.pixels;
  n.slices = std::min(gpu::divided_up(gradient ? n.pixels : n.size, kSlice), kMostSlices);
  const int blocks = n.groups * n.slices * (gradient ? n.weights : 1);
  const auto kernels = [=](const Node&, int each) -> std::vector<GpuKernel> {
    const char* const how = norm.frozen ? "frozen" : "in_parts";
    const std::string name = gradient ? "norm_gradient" : "norm";
    if (!gradient && !norm.frozen && n.slices == 1)
      return {kernel(name, "whole", each, threads_for(n.size), blocks)};
    const int threads = gradient ? threads_for(n.pixels) : kBlock;
    std::vector<GpuKernel> all = {kernel(name, how, each, threads, blocks)};
    if (gradient || !norm.frozen)
      all.insert(all.begin(), kernel(name + "_parts", nullptr, each, threads, blocks));
    return all;
  };
  return {.name = kind + text_of(layout_of(x)) + (gradient ? " gradient" : ""),
          .on_cores = on_cores(gradient, norm, {true, false, true}, compute),
          .on_gpu = gpu_norm(n, gradient, norm.frozen, std::size_t(blocks), kernels)};
}

Operation layer_norm_of(const kernels::Matrix& m, double eps, bool gradient) {
  const auto compute = [=](const auto& operands, int, kernels::Share share) {
    gradient ? kernels::layer_norm_gradient(m, operands, share)
             : kernels::layer_norm(m, eps, operands, share);
  };
  const gpu::NormArguments n{
      .eps = eps, .groups = int(m.rows), .size = int(m.row), .pixels = 1, .slices = 1};
  const auto kernels = [=](const Node& node, int each) {
    std::vector<GpuKernel> all;
    if (node.writes[0].defined())
      all.push_back(kernel(gradient ? "norm_gradient" : "norm", "whole", each, threads_for(n.size),
                           n.groups));
    if (gradient && (node.writes[1].defined() || node.writes[2].defined()))
      all.push_back({"layer_norm_weight_gradients", gpu::kSumThreads,
                     gpu::divided_up(n.size, gpu::kColumns), gpu::kSumThreads});
    return all;
  };
  return {.name = gradient ? "layer norm gradient" : "layer norm",
          .on_cores = on_cores(gradient, {}, {true}, compute),
          .on_gpu = gpu_norm(n, gradient, false, 0, kernels)};
}

// ---- Rules.

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
  return lower.add_image(y,
                         group_norm_of(norm_of(x, groups, call.arguments[7].toDouble()), false, x),
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
      y, group_norm_of(norm_of(x, x.size(1), call.arguments[7].toDouble(), true), false, x),
      {lower.read(x), weight, bias, mean, variance});
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
  return lower.add_image(dx, group_norm_of(norm, true, x), {gradient, from, mean, rstd, weight},
                         {dw, db});
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
         lower.add(
             layer_norm_of(rows_of(x, call.arguments[1]), call.arguments[4].toDouble(), false),
             {x, weight, bias}, {y, result(call, 1), result(call, 2)});
}
// native_layer_norm_backward(gradient, input, normalized_shape, mean, rstd, weight?, bias?, mask)
bool layer_norm_backward(Lowering& lower, const Call& call) {
  const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &dx = result(call, 0),
                   &dw = result(call, 1), &db = result(call, 2);
  const at::Tensor weight = optional(call, 5);
  if (!is_copyable(dy) || !are_plain(x, dx, dw, db, weight)) return false;
  return lower.add(layer_norm_of(rows_of(x, call.arguments[2]), 0, true),
                   {lower.contiguous(dy), x, tensor(call, 3), tensor(call, 4), weight},
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
