// A factor times the sum of each channel over all pixels: {x} -> {sums}. Sums over other dimensions
// are such once those come first.
#include <ATen/ATen.h>

#include <set>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

/// Dimensions of `x` in two parts, size-1 dimensions aside.
struct Sides {
  std::vector<std::int64_t> summed, kept;
  Sides(const at::Tensor& x, const std::vector<std::int64_t>& dimensions) {
    std::set<std::int64_t> all;
    for (const std::int64_t d : dimensions) all.insert(d < 0 ? d + x.dim() : d);
    for (std::int64_t d = 0; d < x.dim(); ++d) {
      if (x.size(d) > 1) (all.empty() || all.contains(d) ? summed : kept).push_back(d);
    }
  }
};

/// `x` with the summed dimensions first.
at::Tensor summed_first(const at::Tensor& x, const Sides& sides) {
  std::vector<std::int64_t> order = sides.summed, sizes, strides;
  order.insert(order.end(), sides.kept.begin(), sides.kept.end());
  for (const std::int64_t d : order) {
    sizes.push_back(x.size(d));
    strides.push_back(x.stride(d));
  }
  return x.as_strided(sizes, strides);
}

// sum(input, dim[]?, keepdim, dtype?), sum(input, dtype?), means alike
bool channel_sums(Lowering& lower, const Call& call) {
  const at::Tensor &x = tensor(call, 0), &made = result(call);
  if (!are_plain(made) || made.numel() == 0 || x.numel() == 0 || !is_copyable(x) ||
      !call.arguments.back().isNone())
    return false;
  const bool some = call.arguments[1].isIntList();
  const Sides sides(x, some ? call.arguments[1].toIntVector() : std::vector<std::int64_t>());
  const float factor = call.name() == "aten::mean" ? float(made.numel()) / float(x.numel()) : 1;
  if (is_picture(x) && sides.kept == std::vector<std::int64_t>{1}) {
    const at::Tensor image = lower.read(x);
    return lower.add(channel_sums_of(image, factor), {image}, {made});
  }
  const at::Tensor from = is_picture(x) && lower.has_image(x) ? lower.read(x) : x;
  const at::Tensor turned = summed_first(from, sides);
  if (turned.dim() > kernels::kMostDimensions) return false;
  if (sides.summed.empty()) return lower.copy(turned, made.view(turned.sizes()));
  const at::Tensor rows = as_pixels(lower.contiguous(turned).view({-1, made.numel()}));
  return lower.add(channel_sums_of(rows, factor), {rows}, {made});
}

}  // namespace

Operation channel_sums_of(const at::Tensor& x, float factor) {
  const kernels::Layout layout = layout_of(x);
  const auto bind = [=](const Node& n, char*) {
    return kernels::SumArguments{.x = floats(n.reads[0]),
                                 .sums = floats(n.writes[0]),
                                 .factor = factor,
                                 .count = layout.pixels(),
                                 .columns = layout.channels};
  };
  const auto on_cores = [=](const kernels::SumArguments& s, kernels::Share share) {
    kernels::channel_sums(layout, s.x, s.factor, s.sums, share);
  };
  const GpuKernel kernel =
      is_image(x) ? GpuKernel{"channel_sums", gpu::kThreads, layout.channels, 2 * gpu::kThreads}
                  : GpuKernel{"column_sums", gpu::kSumThreads,
                              gpu::divided_up(layout.channels, gpu::kColumns), gpu::kSumThreads};
  return {.name = "channel sums of " + text_of(layout),
          .on_cores = by_team(bind, on_cores),
          .on_gpu = gpu_call({kernel}, bind)};
}

const Rules channel_sums_rules = {
    {"aten::sum", {channel_sums}},
    {"aten::mean", {channel_sums}},
};

}  // namespace millrace::program
