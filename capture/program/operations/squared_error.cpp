// The mean squared error: {prediction, target} -> {loss}; gradient: {scale, prediction, target} ->
// {gradient}.
#include <ATen/ATen.h>

#include <algorithm>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

Operation loss(const at::Tensor& prediction) {
  const int count = int(prediction.numel());
  const int blocks = std::min(gpu::divided_up(count, 8 * gpu::kSumThreads), gpu::kSumThreads);
  std::vector<GpuKernel> kernels = {
      {"squared_error", gpu::kSumThreads, blocks, 2 * gpu::kSumThreads}};
  if (blocks > 1)
    kernels.push_back({"squared_error_of_parts", gpu::kSumThreads, 1, 2 * gpu::kSumThreads});
  const auto bind = [=](const Node& n, char* scratch) {
    return gpu::SquaredErrorArguments{.prediction = floats(n.reads[0]),
                                      .target = floats(n.reads[1]),
                                      .out = floats(n.writes[0]),
                                      .parts = reinterpret_cast<double*>(scratch),
                                      .count = count,
                                      .blocks = blocks};
  };
  const auto call = [l = layout_of(prediction)](const Addresses& at, kernels::Share) {
    *at.writes[0] = kernels::mse(l, at.reads[0], at.reads[1], nullptr, false);
  };
  return {.name = "mean squared error",
          .on_cores = by_one(call),
          .on_gpu = gpu_call(kernels, bind, std::size_t(blocks) * sizeof(double))};
}

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

Operation loss_gradient(const at::Tensor& prediction) {
  const int count = int(prediction.numel());
  const auto on_cores = [l = layout_of(prediction)](const Node& node, int threads) {
    const auto call = [=, through = through_sigmoid(node)](const Addresses& at, kernels::Share) {
      kernels::mse(l, at.reads[1], at.reads[2], at.writes[0], through, *at.reads[0]);
    };
    return by_one(call)(node, threads);
  };
  const auto bind = [=](const Node& n, char*) {
    return gpu::SquaredErrorArguments{.prediction = floats(n.reads[1]),
                                      .target = floats(n.reads[2]),
                                      .scale = floats(n.reads[0]),
                                      .out = floats(n.writes[0]),
                                      .count = count,
                                      .through_sigmoid = through_sigmoid(n)};
  };
  return {
      .name = "mean squared error's gradient",
      .take_over = take_sigmoid,
      .on_cores = on_cores,
      .on_gpu = gpu_call(
          {{"squared_error_gradient", gpu::kThreads, gpu::divided_up(count, gpu::kThreads)}}, bind),
      .attributes = false};
}

bool is_mean(const c10::IValue& reduction) {
  return reduction.toInt() == at::Reduction::Mean;
}
bool mse_loss(Lowering& lower, const Call& call) {
  const at::Tensor &prediction = tensor(call, 0), &target = tensor(call, 1);
  if (!are_pictures(prediction, target) || prediction.sizes() != target.sizes() ||
      !is_mean(call.arguments[2]))
    return false;
  const at::Tensor from = lower.read(prediction), to = lower.read(target);
  return lower.add(loss(prediction), {from, to}, {result(call)});
}
bool mse_loss_backward(Lowering& lower, const Call& call) {
  const at::Tensor &scale = tensor(call, 0), &prediction = tensor(call, 1),
                   &target = tensor(call, 2), &made = result(call);
  if (scale.numel() != 1 || !is_dense(scale) || !are_pictures(prediction, target, made) ||
      prediction.sizes() != target.sizes() || !is_mean(call.arguments[3]))
    return false;
  const at::Tensor from = lower.read(prediction), to = lower.read(target);
  return lower.add_image(made, loss_gradient(prediction), {scale, from, to});
}

}  // namespace

const Rules squared_error_rules = {
    {"aten::mse_loss", {mse_loss}},
    {"aten::mse_loss_backward", {mse_loss_backward}},
};

}  // namespace millrace::program
