// The kernels of step programs, done by a host: NVRTC's name of an instance is that of the one
// here.
#define MILLRACE_HOST_DEVICE "tests/host_device/block.h"
#include <dlfcn.h>

#include "capture/program/cuda/convolution.cuh"
#include "capture/program/cuda/elementwise.cuh"
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
              [=, memory = at.host, blocks = int(launch.grid.x), threads = int(launch.block.x),
               bytes = launch.shared_bytes] {
                host_device::run_blocks(blocks, threads, bytes, memory, [&] { body(arguments); });
              },
          .ranges = at.device};
}

const bool registered = [] {
  hostDevicePlay("gpu11convolution", of<ConvolutionArguments>);
  hostDevicePlay("gpu16weight_gradients", of<WeightGradientArguments>);
  hostDevicePlay("gpu12add_up_parts", of<PartsArguments>);
  hostDevicePlay("gpu11elementwise", of<ElementwiseArguments>);
  hostDevicePlay("gpu12copy_strided", of<CopyArguments>);
  hostDevicePlay("gpu13squared_error", of<SquaredErrorArguments>);
  hostDevicePlay("gpu22squared_error_gradient", of<SquaredErrorArguments>);
  return true;
}();

}  // namespace
