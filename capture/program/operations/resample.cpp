// Pictures of weighted sums of another's pixels, along each side alone: interpolation, padding that
// repeats pixels, mean pools, {x} -> {y}, and their gradients, {dy} -> {dx}.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

/// [output]: the weights of inputs along a side.
using Side = std::vector<std::map<int, float>>;
/// Makes a side's from its numbers of inputs and outputs.
using SideOf = std::function<Side(int side, int inputs, int outputs)>;

Side transposed(const Side& side, int inputs) {
  Side made(static_cast<std::size_t>(inputs));
  for (std::size_t output = 0; output < side.size(); ++output) {
    for (const auto& [input, weight] : side[output]) made[std::size_t(input)][int(output)] = weight;
  }
  return made;
}

/// A side in memory that kernels read.
struct Table {
  at::Tensor counts, inputs, weights;  ///< [output], [output][most], alike
  int most = 1;

  Table(const Side& side, c10::Device device) {
    const auto outputs = std::int64_t(side.size());
    for (const auto& taps : side) most = std::max(most, int(taps.size()));
    counts = at::zeros({outputs}, at::kInt);
    inputs = at::zeros({outputs, most}, at::kInt);
    weights = at::zeros({outputs, most});
    for (std::int64_t output = 0; output < outputs; ++output) {
      int* const count = counts.mutable_data_ptr<int>() + output;
      for (const auto& [input, weight] : side[std::size_t(output)]) {
        const std::int64_t at = output * most + (*count)++;
        inputs.mutable_data_ptr<int>()[at] = input;
        weights.mutable_data_ptr<float>()[at] = weight;
      }
    }
    for (at::Tensor* const t : {&counts, &inputs, &weights}) *t = t->to(device);
  }
  kernels::WeightedSide side() const {
    return {counts.const_data_ptr<int>(), inputs.const_data_ptr<int>(),
            weights.const_data_ptr<float>(), most};
  }
};

bool resample(Lowering& lower, const at::Tensor& from, const at::Tensor& to, bool gradient,
              const SideOf& side_of) {
  if (!are_pictures(from, to)) return false;
  const auto table = [&](int side) {
    const int given = int(from.size(2 + side)), made = int(to.size(2 + side));
    return Table(
        gradient ? transposed(side_of(side, made, given), made) : side_of(side, given, made),
        to.device());
  };
  const kernels::Layout input = layout_of(from), output = layout_of(to);
  const auto bind = [=, rows = table(0), columns = table(1)](const Node& n, char*) {
    return kernels::ResampleArguments{.x = floats(n.reads[0]),
                                      .to = floats(n.writes[0]),
                                      .input = input,
                                      .output = output,
                                      .rows = rows.side(),
                                      .columns = columns.side()};
  };
  const GpuKernel kernel = per_element("resample", int(output.floats()));
  return lower.add_image(to,
                         {.name = "resampling " + text_of(input) + " -> " + text_of(output),
                          .on_cores = by_team(bind, kernels::resample),
                          .on_gpu = gpu_call({kernel}, bind)},
                         {lower.read(from)});
}

/// The weights of four neighbours at `t` between the inner two (Keys' cubic convolution).
std::array<float, 4> cubic(float t) {
  constexpr float a = -0.75f;
  const auto near = [](float x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](float x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

/// Rounds as LibTorch does.
Side interpolated(const std::string& kind, int inputs, int outputs, bool corners,
                  const c10::IValue& factor) {
  const bool given = !factor.isNone() && factor.toDouble() > 0;
  const float step = corners ? (outputs > 1 ? float(inputs - 1) / float(outputs - 1) : 0)
                     : given ? float(1 / factor.toDouble())
                             : float(inputs) / float(outputs);
  Side side;
  for (int output = 0; output < outputs; ++output) {
    std::map<int, float>& taps = side.emplace_back();
    const auto add = [&](int input, float weight) {
      taps[std::clamp(input, 0, inputs - 1)] += weight;
    };
    if (kind == "nearest2d") {
      add(int(std::floor(float(output) * step)), 1);
      continue;
    }
    const bool linear = kind == "bilinear2d";
    float at = corners ? step * float(output) : step * (float(output) + 0.5f) - 0.5f;
    if (linear) at = std::max(at, 0.0f);
    const int first = std::min(int(std::floor(at)), inputs - 1);
    const float t = std::clamp(at - float(first), 0.0f, 1.0f);
    if (linear) {
      add(first, 1 - t);
      add(first + 1, t);
      continue;
    }
    const std::array<float, 4> weights = cubic(t);
    for (int i = 0; i < 4; ++i) add(first - 1 + i, weights[std::size_t(i)]);
  }
  return side;
}

// upsample_KIND(x, size, corners, scale?, scale?), upsample_KIND_backward(gradient, size, size of
// x, ...) alike; without corners for the nearest
bool upsample(Lowering& lower, const Call& call) {
  const bool gradient = call.name().ends_with("_backward");
  const std::string kind = call.name().substr(sizeof("aten::upsample_") - 1),
                    base = kind.substr(0, kind.find('_'));
  std::size_t next = gradient ? 3 : 2;
  const bool corners = base != "nearest2d" && call.arguments[next++].toBool();
  return resample(lower, tensor(call, 0), result(call), gradient,
                  [&](int side, int inputs, int outputs) {
                    return interpolated(base, inputs, outputs, corners,
                                        call.arguments[next + std::size_t(side)]);
                  });
}

// KIND_pad2d(x, pads[]), KIND_pad2d_backward(gradient, x, pads[]): left, right, top, bottom
bool padding(Lowering& lower, const Call& call) {
  const bool gradient = call.name().ends_with("_backward"),
             mirrors = call.name().starts_with("aten::reflection");
  const std::vector<std::int64_t> pads = call.arguments[gradient ? 2 : 1].toIntVector();
  return resample(lower, tensor(call, 0), result(call), gradient,
                  [&](int side, int inputs, int outputs) {
                    Side made;
                    for (int output = 0; output < outputs; ++output) {
                      int at = output - int(pads[side == 0 ? 2 : 0]);
                      if (mirrors) at = inputs - 1 - std::abs(inputs - 1 - std::abs(at));
                      made.push_back({{std::clamp(at, 0, inputs - 1), 1.0f}});
                    }
                    return made;
                  });
}

/// The inputs [from, to) of a mean along a side, and what each counts.
struct Mean {
  int from, to;
  float share;
};
using MeanOf = std::function<Mean(int side, int output, int inputs, int outputs)>;

/// {x} -> {y} or, by an operator named _backward, {dy} -> {dx}.
bool mean(Lowering& lower, const Call& call, const MeanOf& mean_of) {
  const at::Tensor &from = tensor(call, 0), &to = result(call);
  const bool gradient = call.name().ends_with("_backward");
  if (!are_pictures(from, to)) return false;
  const auto takes_all = [&](int side) {
    const int inputs = int(from.size(2 + side));
    const Mean all = mean_of(side, 0, inputs, 1);
    return to.size(2 + side) == 1 && all.from == 0 && all.to == inputs &&
           all.share == 1 / float(inputs);
  };
  if (!gradient && takes_all(0) && takes_all(1)) {  // summed by many threads of a GPU
    at::Tensor made = to;
    return lower.compose([&] { made.copy_(from.mean({2, 3}, /*keepdim=*/true)); });
  }
  return resample(lower, from, to, gradient, [&](int side, int inputs, int outputs) {
    Side made(static_cast<std::size_t>(outputs));
    for (int output = 0; output < outputs; ++output) {
      const Mean mean = mean_of(side, output, inputs, outputs);
      for (int input = mean.from; input < mean.to; ++input)
        made[std::size_t(output)][input] = mean.share;
    }
    return made;
  });
}

// avg_pool2d(x, kernel, stride, padding, ceil, counts zeros, divisor?), avg_pool2d_backward(
// gradient, x, kernel, ...) alike
bool mean_pool(Lowering& lower, const Call& call) {
  const std::size_t first = call.name().ends_with("_backward") ? 2 : 1;
  const bool counts_zeros = call.arguments[first + 4].toBool();
  const c10::IValue& divisor = call.arguments[first + 5];
  return mean(lower, call, [&](int side, int output, int inputs, int) {
    const kernels::Taps taps = taps_of(call, first, std::size_t(side));
    const int begin = output * taps.stride - taps.padding,
              end = std::min(begin + taps.count, inputs + taps.padding), from = std::max(begin, 0),
              to = std::min(end, inputs);
    const float share = 1 / float(counts_zeros ? end - begin : to - from);
    const float given = side == 0 && !divisor.isNone() ? 1 / float(divisor.toInt()) : 1;
    return Mean{from, to, divisor.isNone() ? share : given};
  });
}

// _adaptive_avg_pool2d(x, size), _adaptive_avg_pool2d_backward(gradient, x)
bool adaptive_mean_pool(Lowering& lower, const Call& call) {
  return mean(lower, call, [](int, int output, int inputs, int outputs) {
    const int from = output * inputs / outputs,
              to = kernels::divided_up((output + 1) * inputs, outputs);
    return Mean{from, to, 1 / float(to - from)};
  });
}

}  // namespace

const Rules resample_rules = with_gradients({
    {"aten::avg_pool2d", {mean_pool}},
    {"aten::_adaptive_avg_pool2d", {adaptive_mean_pool}},
    {"aten::upsample_nearest2d", {upsample}},
    {"aten::upsample_bilinear2d", {upsample}},
    {"aten::upsample_bicubic2d", {upsample}},
    {"aten::reflection_pad2d", {padding}},
    {"aten::replication_pad2d", {padding}},
});

}  // namespace millrace::program
