// How kernels of step programs are done by a host: NVRTC's name of an instance is that of the one
// in this library. Here are all but convolutions' (fma_kernels.cpp, tensor_kernels.cpp), and what
// memory each kernel's arguments reach.
#define MILLRACE_HOST_DEVICE "tests/host_device/block.h"
#include <dlfcn.h>

#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "tests/host_device/block.h"

// What instances are named after is as visible as they are.
#pragma GCC visibility push(default)
#include "capture/program/cuda/arguments.h"
#include "capture/program/cuda/parts.cuh"
#include "capture/program/operations/bytes.cuh"
#include "capture/program/operations/map.cuh"
#include "capture/program/operations/norm.cuh"
#include "capture/program/operations/pool.cuh"
#include "capture/program/operations/resample.cuh"
#include "capture/program/operations/softmax.cuh"
#include "capture/program/operations/squared_error.cuh"
#include "capture/program/operations/update.cuh"
#pragma GCC visibility pop

namespace host_device {
namespace {

/// What a kernel is told, with addresses that the host reaches, and the memory that it touches.
class Reached {
 public:
  explicit Reached(int launched) : blocks(launched) {}
  template <class T>
  void read(const T*& address, long long count) {
    address = note(address, count, false);
  }
  template <class T>
  void write(T*& address, long long count) {
    address = note(address, count, true);
  }
  const int blocks;
  std::vector<Range> device, host;

 private:
  template <class T>
  T* note(T* address, long long count, bool written) {
    if (!address) return address;
    const std::size_t bytes = std::size_t(count) * sizeof(T);
    device.push_back({address, bytes, written});
    if (!hostDeviceHolds(address)) hostDeviceFault("a kernel touches pageable memory");
    auto* const here = static_cast<T*>(hostDeviceReach(address));
    host.push_back({here, bytes, written});
    return here;
  }
};

}  // namespace
}  // namespace host_device

namespace millrace::gpu {

using namespace host_device;

#define NORMS(...)                                                              \
  template KERNEL(0) norm<Norm::whole, __VA_ARGS__>(NormArguments);             \
  template KERNEL(0) norm<Norm::in_parts, __VA_ARGS__>(NormArguments);          \
  template KERNEL(0) norm<Norm::frozen, __VA_ARGS__>(NormArguments);            \
  template KERNEL(0) norm_parts<__VA_ARGS__>(NormArguments);                    \
  template KERNEL(0) norm_gradient<Norm::whole, __VA_ARGS__>(NormArguments);    \
  template KERNEL(0) norm_gradient<Norm::in_parts, __VA_ARGS__>(NormArguments); \
  template KERNEL(0) norm_gradient<Norm::frozen, __VA_ARGS__>(NormArguments);   \
  template KERNEL(0) norm_gradient_parts<__VA_ARGS__>(NormArguments)
NORMS(1, 128);
NORMS(1, 512);
NORMS(4, 128);
NORMS(4, 512);

#define ROWS(threads)                                \
  template KERNEL(0) softmax<threads>(RowArguments); \
  template KERNEL(0) softmax_gradient<threads>(RowArguments)
ROWS(64);
ROWS(512);

#define UPDATE(optimizer)                                                                   \
  template KERNEL(0) update<optimizer, CorrectionRule::none>(UpdateArguments);              \
  template KERNEL(0) update<optimizer, CorrectionRule::discrepancy>(UpdateArguments);       \
  template KERNEL(0) update<optimizer, CorrectionRule::weight_prediction>(UpdateArguments); \
  template KERNEL(0) update<optimizer, CorrectionRule::gap_aware>(UpdateArguments);         \
  template KERNEL(0) update<optimizer, CorrectionRule::dc_asgd>(UpdateArguments)
UPDATE(0);
UPDATE(1);
UPDATE(2);
UPDATE(3);

template KERNEL(0) copy_bytes<float4>(CopyArguments);
template KERNEL(0) copy_bytes<double>(CopyArguments);
template KERNEL(0) copy_bytes<float>(CopyArguments);
template KERNEL(0) copy_bytes<char>(CopyArguments);

namespace {

/// Of every function.
template <int... kFunctions>
std::vector<void (*)(MapArguments)> maps(std::integer_sequence<int, kFunctions...>) {
  return {map<Function(kFunctions), 1>..., map<Function(kFunctions), 4>...};
}
constexpr int kFunctions = 0
#define FUNCTION(...) +1
#include "capture/program/kernels/functions-inl.h"
    ;
const auto all_maps = maps(std::make_integer_sequence<int, kFunctions>());

// ---- What they reach.

void reach(ConvolutionArguments& a, Reached& at) {
  const long long in = 1ll * a.groups * a.from.channels * a.from.height * a.from.width;
  const long long out = 1ll * a.groups * a.to.channels * a.to.height * a.to.width;
  at.read(a.in, in);
  at.read(a.weights, 1ll * a.groups * a.from.channels * a.to.channels * a.taps);
  at.read(a.bias, a.groups * a.to.channels);
  at.read(a.mask, out);
  at.write(a.out, out);
}
void reach(WeightGradientArguments& a, Reached& at) {
  for (WeightGradient& g : a.all) {
    if (!g.parts) continue;
    at.read(g.x, 1ll * g.groups * g.from.channels * g.from.height * g.from.width);
    at.read(g.dy, 1ll * g.groups * g.to.channels * g.to.height * g.to.width);
    at.write(g.parts, 1ll * g.slices * g.groups * g.to.channels * g.from.channels * g.taps);
    at.write(g.bias_parts, 1ll * g.slices * g.groups * g.to.channels);
  }
}
void reach(PartsArguments& a, Reached& at) {
  for (Parts& p : a.all) {
    at.read(p.parts, 1ll * p.slices * p.count);
    at.write(p.sum, p.count);
  }
}

/// Floats that an operand or a result of a map spans.
long long span(const MapArguments& m, const int* strides) {
  long long last = 0;
  for (int d = 0; d < m.dimensions; ++d) last += 1ll * (m.sizes[d] - 1) * strides[d];
  return last + 1;
}
void reach(MapArguments& m, Reached& at) {
  for (Spread* const operand : {&m.left, &m.right}) at.read(operand->at, span(m, operand->strides));
  at.write(m.made, span(m, m.made_strides));
}
void reach(NormArguments& n, Reached& at) {
  const long long all = 1ll * n.groups * n.size;
  const long long weights = n.weights > 0 ? 1ll * n.groups * n.weights : n.size;
  at.read(n.gradient, all);
  at.read(n.source, all);
  at.read(n.weight, weights);
  at.read(n.bias, weights);
  at.write(n.mean, n.groups);
  at.write(n.rstd, n.groups);
  at.write(n.destination, all);
  at.write(n.weight_gradient, weights);
  at.write(n.bias_gradient, weights);
  at.write(n.parts, n.weights > 0 ? 1ll * n.groups * (n.gradient ? n.weights : 1) * n.slices : 0);
}
void reach(RowArguments& r, Reached& at) {
  at.read(r.a, 1ll * at.blocks * r.row);
  at.read(r.b, 1ll * at.blocks * r.row);
  at.write(r.to, 1ll * at.blocks * r.row);
}
void reach(SumArguments& s, Reached& at) {
  at.read(s.x, 1ll * s.count * s.columns);
  at.write(s.sums, s.columns);
}
void reach(PoolArguments& p, Reached& at) {
  const long long in = (long long)(p.input.floats()), out = (long long)(p.output.floats());
  at.read(p.x, in);
  at.write(p.to, p.dy ? in : out);
  at.read(p.dy, out);
}
void reach(ResampleArguments& r, Reached& at) {
  at.read(r.x, (long long)(r.input.floats()));
  at.write(r.to, (long long)(r.output.floats()));
  for (const auto& [side, outputs] :
       {std::pair(&r.rows, r.output.height), std::pair(&r.columns, r.output.width)}) {
    at.read(side->counts, outputs);
    at.read(side->inputs, 1ll * outputs * side->most);
    at.read(side->weights, 1ll * outputs * side->most);
  }
}
void reach(CopyArguments& c, Reached& at) {
  const auto* from = static_cast<const char*>(c.from);
  auto* to = static_cast<char*>(c.to);
  at.read(from, c.bytes);
  at.write(to, c.bytes);
  c.from = from;
  c.to = to;
}
void reach(BytesArguments& b, Reached& at) {
  at.read(b.bytes, 1ll * b.channels * b.pixels);
  at.write(b.to, 1ll * b.channels * b.pixels);
}
void reach(UpdateArguments& u, Reached& at) {
  at.read(u.from, u.count);
  at.read(u.gradient, u.count);
  at.write(u.to, u.count);
  for (float*& buffer : u.state.buffers) at.write(buffer, u.count);
  at.write(u.state.steps, 1);
  at.write(u.memory.shift, u.count);
  at.write(u.memory.change, u.count);
  at.write(u.memory.old, (u.numbers.correction.updates + 1) * u.count);
  at.write(u.memory.newest, 1);
  at.write(u.memory.square, u.count);
  at.write(u.memory.step, 1);
  at.write(u.memory.stepped, 1);
  at.read(u.rate, 1);
  at.read(u.given, 1);
  at.write(u.finite, 1);
  at.write(u.skipped, 1);
  at.write(u.notes, 1);
}
void reach(SquaredErrorArguments& a, Reached& at) {
  at.read(a.prediction, a.count);
  at.read(a.target, a.count);
  at.read(a.scale, 1);
  at.write(a.out, a.scale ? a.count : 1);
  at.write(a.parts, a.blocks);
}

/// The work of a launch of a kernel with `Arguments`, which reach(arguments, at) notes.
template <class Arguments>
Work work_of(const Launch& launch) {
  Arguments arguments = *static_cast<Arguments*>(launch.arguments[0]);
  Reached at(int(launch.grid.x));
  reach(arguments, at);
  auto* const body = reinterpret_cast<void (*)(Arguments)>(dlsym(RTLD_DEFAULT, launch.name));
  if (!body) {
    hostDeviceFault(launch.name);
    return {.name = "a kernel that is not compiled for the host", .run = [] {}};
  }
  return {.name = "millrace's " + std::string(launch.name),
          .run = [=, memory = at.host] { run_blocks(launch, memory, [&] { body(arguments); }); },
          .ranges = at.device};
}

/// Does launches of whatever kernel takes such arguments: a kernel's mangled name ends with
/// theirs.
template <class... Arguments>
bool play() {
  const auto name = [](const char* all) {  // "12RowArgumentsE", with its length in two digits
    return all + std::string_view(all).find_last_of("0123456789") - 1;
  };
  (hostDevicePlay(name(typeid(Arguments).name()), work_of<Arguments>), ...);
  return true;
}
const bool played =
    play<ConvolutionArguments, WeightGradientArguments, PartsArguments, MapArguments, NormArguments,
         RowArguments, SumArguments, PoolArguments, ResampleArguments, CopyArguments,
         BytesArguments, UpdateArguments, SquaredErrorArguments>();

}  // namespace
}  // namespace millrace::gpu
