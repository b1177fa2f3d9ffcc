// A factor times the sum of each channel over all pixels: {x} -> {sums}.
#include <ATen/ATen.h>

#include <set>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

/// Whether it holds one number per channel of `picture`, in the sums' shape.
bool is_of_channels(const at::Tensor& tensor, const at::Tensor& picture) {
  return tensor.numel() == picture.size(1) &&
         (tensor.dim() != 4 || tensor.size(1) == picture.size(1));
}
/// Whether a sum is over all dimensions but `kept`, size-1 dimensions aside.
bool all_but(std::int64_t kept, const at::Tensor& x, const c10::IValue& dimensions) {
  std::set<std::int64_t> summed;
  for (const std::int64_t d : dimensions.toIntVector()) summed.insert(d < 0 ? d + x.dim() : d);
  for (std::int64_t d = 0; d < x.dim(); ++d) {
    if (d != kept && x.size(d) > 1 && summed.count(d) == 0) return false;
  }
  return summed.count(kept) == 0;
}

// sum(input, dim[], keepdim, dtype?), mean alike
bool channel_sums(Lowering& lower, const Call& call) {
  const at::Tensor &x = tensor(call, 0), &made = result(call);
  if (!is_dense(made) || made.numel() == 0 || !call.arguments[1].isIntList() ||
      !call.arguments[3].isNone())
    return false;
  const bool of_rows = is_dense(x) && x.is_contiguous() && x.dim() > 1 &&
                       made.numel() == x.size(-1) && all_but(x.dim() - 1, x, call.arguments[1]);
  if (!of_rows && !(is_picture(x) && is_of_channels(made, x) && all_but(1, x, call.arguments[1])))
    return false;
  const at::Tensor from = of_rows ? as_pixels(x.view({-1, x.size(-1)})) : lower.read(x);
  const float factor = call.name() == "aten::mean" ? float(made.numel()) / float(x.numel()) : 1;
  return lower.add(channel_sums_of(from, factor), {from}, {made});
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
