// The kernels of step programs, done by a host: NVRTC's name of an instance is that of the one
// here.
#define MILLRACE_HOST_DEVICE "tests/host_device/block.h"
#include <dlfcn.h>

#include "capture/program/cuda/elementwise.cuh"

namespace millrace::gpu {

template KERNEL(0) elementwise<Elementwise::relu>(ElementwiseArguments);
template KERNEL(0) elementwise<Elementwise::sigmoid>(ElementwiseArguments);
template KERNEL(0) elementwise<Elementwise::relu_gradient>(ElementwiseArguments);
template KERNEL(0) elementwise<Elementwise::sigmoid_gradient>(ElementwiseArguments);
template KERNEL(0) elementwise<Elementwise::add>(ElementwiseArguments);

}  // namespace millrace::gpu

namespace {

using host_device::Range;
using host_device::Work;
using namespace millrace::gpu;

/// What a kernel is told, with addresses that the host reaches, and the memory that it touches.
class Reached {
 public:
  template <class T>
  void read(const T*& address, long long count) {
    address = note(address, count, false);
  }
  template <class T>
  void write(T*& address, long long count) {
    address = note(address, count, true);
  }
  std::vector<Range> device, host;

 private:
  template <class T>
  T* note(T* address, long long count, bool written) {
    if (!address) return address;
    const std::size_t bytes = std::size_t(count) * sizeof(T);
    device.push_back({address, bytes, written});
    auto* const here = static_cast<T*>(hostDeviceReach(address));
    host.push_back({here, bytes, written});
    return here;
  }
};

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
void reach(ElementwiseArguments& a, Reached& at) {
  at.read(a.a, a.count);
  at.read(a.b, a.count);
  at.write(a.out, a.count);
}
void reach(CopyArguments& c, Reached& at) {
  long long from = 1, to = 1;
  for (int d = 0; d < 4; ++d) {
    from += 1ll * (c.sizes[d] - 1) * c.from_strides[d];
    to += 1ll * (c.sizes[d] - 1) * c.to_strides[d];
  }
  at.read(c.from, from);
  at.write(c.to, to);
}
void reach(SquaredErrorArguments& a, Reached& at) {
  at.read(a.prediction, a.count);
  at.read(a.target, a.count);
  at.read(a.scale, 1);
  at.write(a.out, a.scale ? a.count : 1);
}

template <class Arguments>
Work of(const host_device::Launch& launch) {
  Arguments arguments = *static_cast<Arguments*>(launch.arguments[0]);
  Reached at;
  reach(arguments, at);
  auto* const body = reinterpret_cast<void (*)(Arguments)>(dlsym(RTLD_DEFAULT, launch.name));
  if (!body) {
    hostDeviceFault(launch.name);
    return {.name = "a kernel that is not compiled for the host", .run = [] {}};
  }
  return {.name = "millrace's " + std::string(launch.name),
          .run =
              [=, memory = at.host] {
                host_device::run_blocks(launch, memory, [&] { body(arguments); });
              },
          .ranges = at.device};
}

const bool registered = [] {
  hostDevicePlay("gpu11convolution", of<ConvolutionArguments>);
  hostDevicePlay("gpu17plain_convolution", of<ConvolutionArguments>);
  hostDevicePlay("gpu16weight_gradients", of<WeightGradientArguments>);
  hostDevicePlay("gpu21plain_weight_gradient", of<WeightGradientArguments>);
  hostDevicePlay("gpu12add_up_parts", of<PartsArguments>);
  hostDevicePlay("gpu11elementwise", of<ElementwiseArguments>);
  hostDevicePlay("gpu12copy_strided", of<CopyArguments>);
  hostDevicePlay("gpu13squared_error", of<SquaredErrorArguments>);
  hostDevicePlay("gpu22squared_error_gradient", of<SquaredErrorArguments>);
  return true;
}();

}  // namespace
