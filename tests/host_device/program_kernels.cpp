// Convolutions and their gradients, done by a host.
#include "tests/host_device/program_kernels.h"

#include "capture/program/cuda/convolution.cuh"
#include "capture/program/cuda/weight_gradient.cuh"

namespace millrace::gpu {

#define CONVOLUTION(kernel, stride, gradient, activation, ...)                                   \
  template KERNEL(0) convolution<kernel, stride, gradient, Activation::activation, __VA_ARGS__>( \
      ConvolutionArguments);
#define SIZES(...)                                                                                \
  SIZE(1, 1, __VA_ARGS__)                                                                         \
  SIZE(1, 2, __VA_ARGS__)                                                                         \
  SIZE(3, 1, __VA_ARGS__) SIZE(3, 2, __VA_ARGS__) SIZE(5, 1, __VA_ARGS__) SIZE(7, 2, __VA_ARGS__) \
      SIZE(15, 1, __VA_ARGS__)
#define SIZE(kernel, stride, ...)                          \
  CONVOLUTION(kernel, stride, false, none, __VA_ARGS__)    \
  CONVOLUTION(kernel, stride, false, relu, __VA_ARGS__)    \
  CONVOLUTION(kernel, stride, false, sigmoid, __VA_ARGS__) \
  CONVOLUTION(kernel, stride, true, none, __VA_ARGS__)
MILLRACE_CONVOLUTION_TILES(SIZES)
#undef SIZE
#define SIZE(kernel, stride, ...) \
  template KERNEL(0) weight_gradients<kernel, stride, __VA_ARGS__>(WeightGradientArguments);
MILLRACE_WEIGHT_GRADIENT_TILES(SIZES)

using host_device::of, host_device::Reached;

void reach(ConvolutionArguments& a, Reached& at) {
  const long long in = 1ll * a.in_channels * a.in_height * a.in_width;
  const long long out = 1ll * a.out_channels * a.out_height * a.out_width;
  at.read(a.in, in);
  at.read(a.weights, 1ll * a.in_channels * a.out_channels * a.kernel * a.kernel);
  at.read(a.bias, a.out_channels);
  at.read(a.mask, out);
  at.write(a.out, out);
}
void reach(WeightGradientArguments& a, Reached& at) {
  for (WeightGradient& g : a.all) {
    if (!g.parts) continue;
    at.read(g.x, 1ll * g.in_channels * g.in_height * g.in_width);
    at.read(g.dy, 1ll * g.out_channels * g.out_height * g.out_width);
    at.write(g.parts, 1ll * g.slices * g.out_channels * g.in_channels * g.kernel * g.kernel);
    at.write(g.bias_parts, 1ll * g.slices * g.out_channels);
  }
}
void reach(PartsArguments& a, Reached& at) {
  for (Parts& p : a.all) {
    at.read(p.parts, 1ll * p.slices * p.count);
    at.write(p.sum, p.count);
  }
}

namespace {
const bool registered = [] {
  hostDevicePlay("gpu11convolution", of<ConvolutionArguments>);
  hostDevicePlay("gpu16weight_gradients", of<WeightGradientArguments>);
  hostDevicePlay("gpu12add_up_parts", of<PartsArguments>);
  return true;
}();
}  // namespace

}  // namespace millrace::gpu
