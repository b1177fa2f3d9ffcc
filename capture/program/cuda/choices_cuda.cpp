#include "capture/program/cuda/choices_cuda.h"

#include <ATen/ATen.h>

#include <cmath>

namespace millrace::program {

ConvolutionShape::ConvolutionShape(const kernels::Convolution& c)
    : groups(c.groups),
      in(c.input.channels / c.groups),
      out(c.output.channels / c.groups),
      flops(kernels::flops(c)),
      gradient(c.pass == kernels::Pass::kDataGradient),
      from(gradient ? c.output : c.input),
      to(gradient ? c.input : c.output) {
  from.channels /= groups;
  to.channels /= groups;
  const auto [rows, columns] = kernels::window_of(c);
  window = in_namespace("Window<" +
                        numbers(rows.count, columns.count, rows.stride, columns.stride,
                                rows.dilation, columns.dilation, rows.padding, columns.padding) +
                        ">");
  y = gpu::side_of(rows, gradient);
  x = gpu::side_of(columns, gradient);
}

std::vector<gpu::Products> products_of(const kernels::Convolution& c,
                                       const ConvolutionShape& shape) {
  constexpr int kFewest = 16, kMostTaps = 7;  // channels; a row's taps are in registers
  constexpr double kLarge = 1e8;              // operations
  std::vector<gpu::Products> all = {gpu::Products::fma};
  if (std::min(shape.in, shape.out) < kFewest || shape.x.taps > kMostTaps) return all;
  if (c.precision == kernels::Precision::kFloat32) {
    if (shape.flops >= kLarge) all.push_back(gpu::Products::exact_tf32);
    return all;
  }
  all.push_back(gpu::Products::tf32);
  if (c.precision == kernels::Precision::kBf16) all.push_back(gpu::Products::half);
  return all;
}

double cost(double sums, double copies, gpu::Products products, int blocks, int threads,
            int sums_of_thread) {
  static constexpr double speeds[] = {1, 2.6, 1.3, 2.8};  // on an H100, with full tiles
  const double busy =
      std::min(1.0, double(blocks) * threads / (256.0 * device_properties().multiProcessorCount));
  const double in_registers =
      by_tensor_cores(products) ? 1 : sums_of_thread / (sums_of_thread + 8.);
  return (sums / in_registers / speeds[int(products)] + copies) / busy;
}

bool fits(int floats, int threads) {
  return std::size_t(floats) * sizeof(float) <= device_properties().sharedMemPerBlockOptin &&
         threads <= device_properties().maxThreadsPerBlock;
}

const char* name_of(gpu::Products products) {
  static constexpr const char* names[] = {"fma", "tf32", "exact_tf32", "half"};
  return names[int(products)];
}
std::string in_namespace(const std::string& what) {
  return "millrace::gpu::" + what;
}
std::string text_of(const gpu::ConvolutionTile& t) {
  return numbers(t.width, t.height, t.run, t.block_channels, t.channels, t.chunk, t.parts);
}
std::string text_of(const gpu::WeightGradientTile& t) {
  return numbers(t.width, t.height, t.in, t.out, t.warp_out, t.sharers);
}

std::string task_of(const kernels::Convolution& c, double share) {
  std::string task = std::string(device_properties().name) + ": " + describe(c) + " " +
                     kernels::kPrecisionNames[int(c.precision)];
  return share < 1 ? task + ", " + std::to_string(int(std::ceil(64 * share))) + "/64" : task;
}

at::Tensor some_floats(double count) {
  return at::zeros({std::int64_t(count)}, at::device(at::kCUDA).dtype(at::kFloat));
}

}  // namespace millrace::program
