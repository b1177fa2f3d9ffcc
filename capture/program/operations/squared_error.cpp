// The mean squared error: {prediction, target} -> {loss}; gradient: {scale, prediction, target} ->
// {gradient}.
#include <ATen/ATen.h>

#include <algorithm>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

/// The attribute: whether it continues through a sigmoid that made the prediction.
bool through_sigmoid(const Node& node) {
  return std::any_cast<bool>(node.operation.attributes);
}
bool take_sigmoid(Node& node, kernels::Function function, const at::Tensor& right) {
  if (through_sigmoid(node) || function != kernels::Function::sigmoid_gradient ||
      !same_memory(right, node.reads[1]))
    return false;
  node.operation.attributes = true;
  return true;
}

Operation error_of(const at::Tensor& prediction, bool gradient) {
  const kernels::Layout layout = layout_of(prediction);
  const int count = int(layout.floats());
  const int blocks = std::min(gpu::divided_up(count, 8 * gpu::kSumThreads), gpu::kSumThreads);
  const auto bind = [=](const Node& n, char* scratch) {
    const at::Tensor* const read = &n.reads[gradient];
    return kernels::SquaredErrorArguments{.prediction = floats(read[0]),
                                          .target = floats(read[1]),
                                          .scale = gradient ? floats(n.reads[0]) : nullptr,
                                          .out = floats(n.writes[0]),
                                          .parts = reinterpret_cast<double*>(scratch),
                                          .count = count,
                                          .row = int(layout.row()),
                                          .blocks = blocks,
                                          .through_sigmoid = gradient && through_sigmoid(n)};
  };
  std::vector<GpuKernel> kernels = {
      {"squared_error", gpu::kSumThreads, blocks, 2 * gpu::kSumThreads}};
  if (blocks > 1)
    kernels.push_back({"squared_error_of_parts", gpu::kSumThreads, 1, 2 * gpu::kSumThreads});
  if (gradient) kernels = {per_element("squared_error_gradient", count)};
  Operation made{.name = gradient ? "mean squared error's gradient" : "mean squared error",
                 .on_cores = by_one(bind, kernels::squared_error),
                 .on_gpu = gpu_call(kernels, bind, std::size_t(blocks) * sizeof(double))};
  if (!gradient) return made;
  made.take_over = take_sigmoid;
  made.attributes = false;
  return made;
}

// mse_loss(prediction, target, reduction), mse_loss_backward(scale, prediction, target, reduction)
bool squared_error(Lowering& lower, const Call& call) {
  const bool gradient = call.name().ends_with("_backward");
  const std::size_t first = gradient ? 1 : 0;
  const at::Tensor &prediction = tensor(call, first), &target = tensor(call, first + 1),
                   &made = result(call);
  if (!are_pictures(prediction, target) || prediction.sizes() != target.sizes() ||
      call.arguments.back().toInt() != at::Reduction::Mean)
    return false;
  if (gradient && (tensor(call, 0).numel() != 1 || !is_dense(tensor(call, 0)) || !is_picture(made)))
    return false;
  std::vector<at::Tensor> reads = {lower.read(prediction), lower.read(target)};
  if (!gradient) return lower.add(error_of(prediction, false), std::move(reads), {made});
  reads.insert(reads.begin(), tensor(call, 0));
  return lower.add_image(made, error_of(prediction, true), std::move(reads));
}

}  // namespace

const Rules squared_error_rules = with_gradients({{"aten::mse_loss", {squared_error}}});

}  // namespace millrace::program
