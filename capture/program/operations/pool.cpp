// Pooling: {x} -> {y}; gradient: {dy[, x]} -> {dx}.
#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

Operation pooling_of(const kernels::PoolArguments& p, bool gradient, const at::Tensor& x) {
  const auto bind = [=](const Node& n, char*) {
    kernels::PoolArguments bound = p;
    (gradient ? bound.dy : bound.x) = floats(n.reads[0]);
    if (n.reads.size() > 1) bound.x = floats(n.reads[1]);
    bound.to = floats(n.writes[0]);
    return bound;
  };
  const std::string kernel = std::string(gradient ? "pool_gradient<" : "pool<") +
                             (p.largest ? "true>" : "false>"),
                    kind = p.largest ? "max pool " : "average pool ";
  const int taps = kernels::taps_of(p.window), made = int((gradient ? p.input : p.output).floats());
  const bool of_all = !gradient && !p.largest && p.output.pixels() == 1 &&
                      taps == p.input.pixels() && p.window.rows.padding == 0;
  return {
      .name = kind + text_of(p.input) + " -> " + text_of(p.output) + (gradient ? " gradient" : ""),
      .on_cores = by_team(bind, kernels::pool),
      .on_gpu =
          of_all ? channel_sums_of(x, 1 / (p.divisor > 0 ? p.divisor : float(taps))).on_gpu
                 : gpu_call({{kernel, gpu::kThreads, gpu::divided_up(made, gpu::kThreads)}}, bind)};
}

// `first`: argument index of kernel; stride, padding and, for max pooling, dilation follow.

std::optional<kernels::PoolArguments> pooling(const at::Tensor& x, const at::Tensor& y,
                                              const Call& call, std::size_t first) {
  if (!are_pictures(x, y)) return {};
  const bool largest = call.name().starts_with("aten::max");
  const auto taps = [&](std::size_t side) {
    const auto number = [&](std::size_t argument) {
      const std::vector<std::int64_t> sides = call.arguments[first + argument].toIntVector();
      return sides.empty() ? 0 : int(sides[std::min(side, sides.size() - 1)]);
    };
    kernels::Taps made{.count = number(0), .stride = number(1), .padding = number(2)};
    if (made.stride == 0) made.stride = made.count;
    if (largest) made.dilation = number(3);
    return made;
  };
  kernels::PoolArguments pool{.input = layout_of(x),
                              .output = layout_of(y),
                              .window = {taps(0), taps(1)},
                              .largest = largest};
  if (largest) return pool;
  const auto [rows, columns] = pool.window;
  if (rows.outputs(pool.input.height) != pool.output.height ||
      columns.outputs(pool.input.width) != pool.output.width)
    return {};  // windows beyond the padding are counted differently
  pool.counts_zeros = call.arguments[first + 4].toBool();
  if (!call.arguments[first + 5].isNone()) pool.divisor = float(call.arguments[first + 5].toInt());
  return pool;
}
bool pools(Lowering& lower, const std::optional<kernels::PoolArguments>& pool, const at::Tensor& x,
           const at::Tensor& y) {
  if (!pool) return false;
  const at::Tensor image = lower.read(x);
  return lower.add_image(y, pooling_of(*pool, false, image), {image});
}
bool pools_back(Lowering& lower, const std::optional<kernels::PoolArguments>& pool,
                const at::Tensor& dy, const at::Tensor& x, const at::Tensor& dx) {
  if (!pool || !are_pictures(dy, dx)) return false;
  const at::Tensor image = lower.read(dy);
  std::vector<at::Tensor> reads = {image};
  if (pool->largest) reads.push_back(lower.read(x));
  return lower.add_image(dx, pooling_of(*pool, true, image), std::move(reads));
}

// avg_pool2d(x, kernel, stride, padding, ceil, counts zeros, divisor?),
// max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil)
bool pool(Lowering& lower, const Call& call) {
  const at::Tensor &x = tensor(call, 0), &y = result(call);
  return pools(lower, pooling(x, y, call, 1), x, y);
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
bool max_pool(Lowering& lower, const Call& call) {
  return only_gradients_read(lower, result(call, 1)) && pool(lower, call);
}
// pool()'s arguments, after the gradient.
bool pool_backward(Lowering& lower, const Call& call) {
  const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1);
  return pools_back(lower, pooling(x, dy, call, 2), dy, x, result(call));
}

/// Adjacent windows of equal size that map `fine` to `coarse`.
std::optional<kernels::PoolArguments> tiles(const at::Tensor& fine, const at::Tensor& coarse) {
  if (!are_pictures(fine, coarse)) return {};
  kernels::PoolArguments pool{.input = layout_of(fine), .output = layout_of(coarse)};
  const auto side = [](int from, int to) {
    return kernels::Taps{.count = from / to, .stride = from / to};
  };
  if (pool.input.height % pool.output.height != 0 || pool.input.width % pool.output.width != 0)
    return {};
  pool.window = {side(pool.input.height, pool.output.height),
                 side(pool.input.width, pool.output.width)};
  return pool;
}
// _adaptive_avg_pool2d(x, size)
bool adaptive_pool(Lowering& lower, const Call& call) {
  return pools(lower, tiles(tensor(call, 0), result(call)), tensor(call, 0), result(call));
}
// _adaptive_avg_pool2d_backward(gradient, x)
bool adaptive_pool_backward(Lowering& lower, const Call& call) {
  const at::Tensor &dy = tensor(call, 0), &dx = result(call);
  return pools_back(lower, tiles(dx, dy), dy, {}, dx);
}
// adaptive_max_pool2d(x, size), adaptive_max_pool2d_backward(gradient, x, indices)
std::optional<kernels::PoolArguments> largest_of_tiles(const at::Tensor& x, const at::Tensor& y) {
  std::optional<kernels::PoolArguments> pool = tiles(x, y);
  if (pool) pool->largest = true;
  return pool;
}
bool adaptive_max_pool(Lowering& lower, const Call& call) {
  const at::Tensor &x = tensor(call, 0), &y = result(call);
  return only_gradients_read(lower, result(call, 1)) && pools(lower, largest_of_tiles(x, y), x, y);
}
bool adaptive_max_pool_backward(Lowering& lower, const Call& call) {
  const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1);
  return pools_back(lower, largest_of_tiles(x, dy), dy, x, result(call));
}
}  // namespace

const Rules pool_rules = {
    {"aten::max_pool2d_with_indices", {max_pool}},
    {"aten::max_pool2d_with_indices_backward", {pool_backward}},
    {"aten::avg_pool2d", {pool}},
    {"aten::avg_pool2d_backward", {pool_backward}},
    {"aten::_adaptive_avg_pool2d", {adaptive_pool}},
    {"aten::_adaptive_avg_pool2d_backward", {adaptive_pool_backward}},
    {"aten::adaptive_max_pool2d", {adaptive_max_pool}},
    {"aten::adaptive_max_pool2d_backward", {adaptive_max_pool_backward}},
};

}  // namespace millrace::program
