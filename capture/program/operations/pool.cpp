// Max pooling: {x} -> {y}; gradient: {dy, x} -> {dx}. Mean pools are in resample.cpp.
#include <ATen/ATen.h>

#include <optional>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

Operation pooling_of(const kernels::PoolArguments& p, bool gradient) {
  const auto bind = [=](const Node& n, char*) {
    kernels::PoolArguments bound = p;
    bound.x = floats(n.reads.back());
    if (gradient) bound.dy = floats(n.reads[0]);
    bound.to = floats(n.writes[0]);
    return bound;
  };
  const int made = int((gradient ? p.input : p.output).floats());
  return {.name = "max pool " + text_of(p.input) + " -> " + text_of(p.output) +
                  (gradient ? " gradient" : ""),
          .on_cores = by_team(bind, kernels::pool),
          .on_gpu = gpu_call({per_element(gradient ? "pool_gradient" : "pool", made)}, bind)};
}

/// Adjacent windows of equal size; none: others.
std::optional<kernels::TapGrid> tiles(const kernels::Layout& in, const kernels::Layout& out) {
  if (in.height % out.height != 0 || in.width % out.width != 0) return {};
  const auto side = [](int count) { return kernels::Taps{.count = count, .stride = count}; };
  return kernels::TapGrid{side(in.height / out.height), side(in.width / out.width)};
}

/// Whether a gradient of a pool is all that reads the maxima's indices. It finds them again.
bool only_gradients_read(const Lowering& lower, const at::Tensor& indices) {
  for (const Call& other : lower.calls()) {
    bool reads = false;
    each_tensor(other.arguments, [&](const at::Tensor& t) { reads |= t.is_alias_of(indices); });
    if (reads && other.name() != "aten::max_pool2d_with_indices_backward" &&
        other.name() != "aten::adaptive_max_pool2d_backward")
      return false;
  }
  return true;
}

// max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil), and _backward(gradient, x,
// kernel, ...); adaptive_max_pool2d(x, size), and _backward(gradient, x, indices)
bool max_pool(Lowering& lower, const Call& call) {
  const bool gradient = call.name().ends_with("_backward");
  const at::Tensor &x = tensor(call, gradient ? 1 : 0), &made = result(call),
                   &y = gradient ? tensor(call, 0) : made;
  if (!are_pictures(x, y, made)) return false;
  const std::size_t first = gradient ? 2 : 1;  // the kernel's
  const auto window =
      call.name().starts_with("aten::adaptive")
          ? tiles(layout_of(x), layout_of(y))
          : std::optional(kernels::TapGrid{taps_of(call, first, 0), taps_of(call, first, 1)});
  if (!window || (!gradient && !only_gradients_read(lower, result(call, 1)))) return false;
  std::vector<at::Tensor> reads = {lower.read(tensor(call, 0))};
  if (gradient) reads.push_back(lower.read(x));
  return lower.add_image(
      made,
      pooling_of({.input = layout_of(x), .output = layout_of(y), .window = *window}, gradient),
      std::move(reads));
}

}  // namespace

int number_of_side(const Call& call, std::size_t argument, std::size_t side) {
  const c10::IValue& given = call.arguments[argument];
  const auto sides = given.isIntList() ? given.toIntVector() : std::vector<std::int64_t>();
  return sides.empty() ? 0 : int(sides[std::min(side, sides.size() - 1)]);
}

kernels::Taps taps_of(const Call& call, std::size_t first, std::size_t side) {
  const auto number = [&](std::size_t i) { return number_of_side(call, first + i, side); };
  const int count = number(0), stride = number(1);
  return {.count = count,
          .stride = stride == 0 ? count : stride,
          .padding = number(2),
          .dilation = std::max(1, number(3))};
}

const Rules pool_rules = with_gradients({
    {"aten::max_pool2d_with_indices", {max_pool}},
    {"aten::adaptive_max_pool2d", {max_pool}},
});

}  // namespace millrace::program
