#include <algorithm>

#include "capture/program/cuda/launch_cuda.h"

namespace millrace::program {
namespace {

constexpr int kSlice = 8192;  ///< least elements per block
constexpr int kMostSlices = 128;
constexpr int kBlock = 512, kSmallBlock = 128;  ///< threads; the latter for groups up to kSmall
constexpr int kSmall = 1024;

int slices_of(int size) {
  return std::min(gpu::divided_up(size, kSlice), kMostSlices);
}

Kernel kernel(const std::string& name, const char* how, int floats_each, int threads, int blocks) {
  const std::string mode = how ? std::string("millrace::gpu::Norm::") + how + ", " : "";
  return {name + "<" + mode + numbers(floats_each, threads) + ">", threads, blocks,
          std::size_t(2 * threads)};
}

gpu::NormArguments describe_norm(const Node& node, bool layer, bool gradient) {
  gpu::NormArguments n{.eps = node.norm.eps, .slices = 1};
  if (layer) {
    n.groups = int(node.matrix.rows);
    n.size = int(node.matrix.row);
    n.pixels = 1;
    return n;
  }
  n.groups = node.norm.groups;
  n.pixels = int(node.norm.pixels);
  n.weights = node.norm.channels / n.groups;
  n.size = n.weights * n.pixels;
  n.slices = slices_of(gradient ? n.pixels : n.size);
  return n;
}

std::vector<Kernel> forward_kernels(const gpu::NormArguments& n, bool frozen, int floats_each) {
  const int blocks = n.groups * n.slices;
  if (frozen) return {kernel("norm", "frozen", floats_each, kBlock, blocks)};
  if (n.slices == 1)
    return {kernel("norm", "whole", floats_each, n.size <= kSmall ? kSmallBlock : kBlock, blocks)};
  return {kernel("norm_parts", nullptr, floats_each, kBlock, blocks),
          kernel("norm", "in_parts", floats_each, kBlock, blocks)};
}

std::vector<Kernel> gradient_kernels(const gpu::NormArguments& n, const Node& node, bool layer,
                                     int floats_each) {
  std::vector<Kernel> kernels;
  if (layer) {
    if (node.writes[0].defined())
      kernels.push_back(kernel("norm_gradient", "whole", floats_each,
                               n.size <= kSmall ? kSmallBlock : kBlock, n.groups));
    if (node.writes[1].defined() || node.writes[2].defined())
      kernels.push_back({"layer_norm_weight_gradients", gpu::kSumThreads,
                         gpu::divided_up(n.size, gpu::kColumns), gpu::kSumThreads});
    return kernels;
  }
  const int blocks = n.groups * n.weights * n.slices;
  const bool small = n.pixels <= kSmall;
  return {kernel("norm_gradient_parts", nullptr, floats_each, small ? kSmallBlock : kBlock, blocks),
          kernel("norm_gradient", node.norm.frozen ? "frozen" : "in_parts", floats_each,
                 small ? kSmallBlock : kBlock, blocks)};
}

}  // namespace

std::unique_ptr<Prepared> gpu_norm(const Node& node) {
  const bool layer = node.kind == Kind::layer_norm, gradient = node.gradient;
  const gpu::NormArguments n = describe_norm(node, layer, gradient);
  bool fours = n.pixels % 4 == 0;
  for (const at::Tensor& t :
       {node.reads[0], gradient ? node.reads[1] : at::Tensor(), node.writes[0]})
    fours = fours && (!t.defined() || holds_fours(floats(t)));
  const int floats_each = fours ? 4 : 1;
  const std::size_t parts =
      layer ? 0 : std::size_t(n.groups) * n.slices * (gradient ? n.weights : 1);
  return std::make_unique<GpuCall<gpu::NormArguments>>(
      node,
      gradient ? gradient_kernels(n, node, layer, floats_each)
               : forward_kernels(n, node.norm.frozen, floats_each),
      [=](const Node& of, char* scratch) {
        gpu::NormArguments bound = n;
        bound.parts = reinterpret_cast<gpu::NormPart*>(scratch);
        bind_norm(of, bound);
        return bound;
      },
      parts * sizeof(gpu::NormPart));
}

}  // namespace millrace::program
