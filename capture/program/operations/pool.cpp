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
          .on_gpu = gpu_call({{gradient ? "pool_gradient" : "pool", gpu::kThreads,
                               gpu::divided_up(made, gpu::kThreads)}},
                             bind)};
}

using Pool = std::optional<kernels::PoolArguments>;

/// `first`: argument index of kernel; stride, padding and dilation follow.
Pool pooling(const at::Tensor& x, const at::Tensor& y, const Call& call, std::size_t first) {
  if (!are_pictures(x, y)) return {};
  return kernels::PoolArguments{.input = layout_of(x),
                                .output = layout_of(y),
                                .window = {taps_of(call, first, 0), taps_of(call, first, 1)}};
}
/// Adjacent windows of equal size.
Pool tiles(const at::Tensor& x, const at::Tensor& y) {
  if (!are_pictures(x, y)) return {};
  const kernels::Layout in = layout_of(x), out = layout_of(y);
  if (in.height % out.height != 0 || in.width % out.width != 0) return {};
  const auto side = [](int count) { return kernels::Taps{.count = count, .stride = count}; };
  return kernels::PoolArguments{
      .input = in,
      .output = out,
      .window = {side(in.height / out.height), side(in.width / out.width)}};
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
bool pools(Lowering& lower, const Call& call, const Pool& pool) {
  if (!pool || !only_gradients_read(lower, result(call, 1))) return false;
  return lower.add_image(result(call), pooling_of(*pool, false), {lower.read(tensor(call, 0))});
}
bool pools_back(Lowering& lower, const Call& call, const Pool& pool) {
  if (!pool || !are_pictures(result(call))) return false;
  return lower.add_image(result(call), pooling_of(*pool, true),
                         {lower.read(tensor(call, 0)), lower.read(tensor(call, 1))});
}

// max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil)
bool max_pool(Lowering& lower, const Call& call) {
  return pools(lower, call, pooling(tensor(call, 0), result(call), call, 1));
}
// max_pool2d_with_indices_backward(gradient, x, kernel, ...) alike
bool max_pool_backward(Lowering& lower, const Call& call) {
  return pools_back(lower, call, pooling(tensor(call, 1), tensor(call, 0), call, 2));
}
// adaptive_max_pool2d(x, size), adaptive_max_pool2d_backward(gradient, x, indices)
bool adaptive_max_pool(Lowering& lower, const Call& call) {
  return pools(lower, call, tiles(tensor(call, 0), result(call)));
}
bool adaptive_max_pool_backward(Lowering& lower, const Call& call) {
  return pools_back(lower, call, tiles(tensor(call, 1), tensor(call, 0)));
}

}  // namespace

kernels::Taps taps_of(const Call& call, std::size_t first, std::size_t side) {
  const auto number = [&](std::size_t argument) {
    const c10::IValue& given = call.arguments[first + argument];
    const std::vector<std::int64_t> sides =
        given.isIntList() ? given.toIntVector() : std::vector<std::int64_t>();
    return sides.empty() ? 0 : int(sides[std::min(side, sides.size() - 1)]);
  };
  kernels::Taps made{.count = number(0), .stride = number(1), .padding = number(2)};
  if (made.stride == 0) made.stride = made.count;
  made.dilation = std::max(1, number(3));
  return made;
}

const Rules pool_rules = {
    {"aten::max_pool2d_with_indices", {max_pool}},
    {"aten::max_pool2d_with_indices_backward", {max_pool_backward}},
    {"aten::adaptive_max_pool2d", {adaptive_max_pool}},
    {"aten::adaptive_max_pool2d_backward", {adaptive_max_pool_backward}},
};

}  // namespace millrace::program
