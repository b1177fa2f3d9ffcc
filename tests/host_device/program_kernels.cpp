// What a host's convolutions reach: fma_kernels.cpp and tensor_kernels.cpp have the kernels.
#include "tests/host_device/program_kernels.h"

#include "capture/program/cuda/arguments.h"

namespace millrace::gpu {

using host_device::of, host_device::Reached;

void reach(ConvolutionArguments& a, Reached& at) {
  const long long in = 1ll * a.groups * a.in_channels * a.in_height * a.in_width;
  const long long out = 1ll * a.groups * a.out_channels * a.out_height * a.out_width;
  at.read(a.in, in);
  at.read(a.weights, 1ll * a.groups * a.in_channels * a.out_channels * a.taps);
  at.read(a.bias, a.groups * a.out_channels);
  at.read(a.mask, out);
  at.write(a.out, out);
}
void reach(WeightGradientArguments& a, Reached& at) {
  for (WeightGradient& g : a.all) {
    if (!g.parts) continue;
    at.read(g.x, 1ll * g.groups * g.in_channels * g.in_height * g.in_width);
    at.read(g.dy, 1ll * g.groups * g.out_channels * g.out_height * g.out_width);
    at.write(g.parts, 1ll * g.slices * g.groups * g.out_channels * g.in_channels * g.taps);
    at.write(g.bias_parts, 1ll * g.slices * g.groups * g.out_channels);
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
  hostDevicePlay("gpu17plain_convolution", of<ConvolutionArguments>);
  hostDevicePlay("gpu16weight_gradients", of<WeightGradientArguments>);
  hostDevicePlay("gpu21plain_weight_gradient", of<WeightGradientArguments>);
  hostDevicePlay("gpu12add_up_parts", of<PartsArguments>);
  return true;
}();
}  // namespace

}  // namespace millrace::gpu
