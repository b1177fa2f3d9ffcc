// The kernels of all other nodes, done by a host.
#include "tests/host_device/program_kernels.h"

#include <cmath>
#include <type_traits>

#include "capture/program/cuda/elementwise.cuh"
#include "capture/program/cuda/norms.cuh"
#include "capture/program/cuda/pool.cuh"
#include "capture/program/cuda/rows.cuh"
#include "capture/program/cuda/update.cuh"

namespace millrace::gpu {

#define MAP(...)                                        \
  template KERNEL(0) map<__VA_ARGS__, 1>(MapArguments); \
  template KERNEL(0) map<__VA_ARGS__, 4>(MapArguments);
#define FUNCTION(name) MAP(Mapped<Function::name>)
MAP(Copied)
FUNCTION(add)
FUNCTION(subtract) FUNCTION(multiply) FUNCTION(divide) FUNCTION(negate) FUNCTION(absolute)
    FUNCTION(sign) FUNCTION(relu) FUNCTION(relu_gradient) FUNCTION(sigmoid)
        FUNCTION(sigmoid_gradient) FUNCTION(tanh) FUNCTION(tanh_gradient) FUNCTION(silu)
            FUNCTION(silu_gradient) FUNCTION(gelu) FUNCTION(gelu_gradient) FUNCTION(gelu_tanh)
                FUNCTION(gelu_tanh_gradient) FUNCTION(hard_sigmoid) FUNCTION(hard_sigmoid_gradient)
                    FUNCTION(hard_swish) FUNCTION(hard_swish_gradient) FUNCTION(clamp)
                        FUNCTION(clamp_gradient) FUNCTION(leaky_relu) FUNCTION(leaky_relu_gradient)
                            FUNCTION(elu) FUNCTION(elu_gradient) FUNCTION(elu_result_gradient)

#define NORMS(...)                                                              \
  template KERNEL(0) norm<Norm::whole, __VA_ARGS__>(NormArguments);             \
  template KERNEL(0) norm<Norm::in_parts, __VA_ARGS__>(NormArguments);          \
  template KERNEL(0) norm<Norm::frozen, __VA_ARGS__>(NormArguments);            \
  template KERNEL(0) norm_parts<__VA_ARGS__>(NormArguments);                    \
  template KERNEL(0) norm_gradient<Norm::whole, __VA_ARGS__>(NormArguments);    \
  template KERNEL(0) norm_gradient<Norm::in_parts, __VA_ARGS__>(NormArguments); \
  template KERNEL(0) norm_gradient<Norm::frozen, __VA_ARGS__>(NormArguments);   \
  template KERNEL(0) norm_gradient_parts<__VA_ARGS__>(NormArguments);
                                NORMS(1, 128) NORMS(1, 512) NORMS(4, 128) NORMS(4, 512)

#define ROWS(threads)                                \
  template KERNEL(0) softmax<threads>(RowArguments); \
  template KERNEL(0) softmax_gradient<threads>(RowArguments);
                                    ROWS(64) ROWS(512)

#define POOLS(largest)                             \
  template KERNEL(0) pool<largest>(PoolArguments); \
  template KERNEL(0) pool_gradient<largest>(PoolArguments);
                                        POOLS(true) POOLS(false)

#define UPDATE(optimizer)                                                                   \
  template KERNEL(0) update<optimizer, CorrectionRule::none>(UpdateArguments);              \
  template KERNEL(0) update<optimizer, CorrectionRule::discrepancy>(UpdateArguments);       \
  template KERNEL(0) update<optimizer, CorrectionRule::weight_prediction>(UpdateArguments); \
  template KERNEL(0) update<optimizer, CorrectionRule::gap_aware>(UpdateArguments);         \
  template KERNEL(0) update<optimizer, CorrectionRule::dc_asgd>(UpdateArguments);
                                            UPDATE(0) UPDATE(1) UPDATE(2) UPDATE(3)

                                                using host_device::of,
    host_device::Reached;

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
  at.read(n.dy, all);
  at.read(n.x, all);
  at.read(n.weight, weights);
  at.read(n.bias, weights);
  at.write(n.mean, n.groups);
  at.write(n.rstd, n.groups);
  at.write(n.to, all);
  at.write(n.dw, weights);
  at.write(n.db, weights);
  at.write(n.parts, n.weights > 0 ? 1ll * n.groups * (n.dy ? n.weights : 1) * n.slices : 0);
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
  const long long in = 1ll * p.channels * p.in_height * p.in_width;
  const long long out = 1ll * p.channels * p.out_height * p.out_width;
  at.read(p.x, in);
  at.write(p.to, p.dy ? in : out);
  at.read(p.dy, out);
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

namespace {
const bool registered = [] {
  hostDevicePlay("gpu3map", of<MapArguments>);
  hostDevicePlay("gpu4norm", of<NormArguments>);
  hostDevicePlay("gpu10norm_parts", of<NormArguments>);
  hostDevicePlay("gpu13norm_gradient", of<NormArguments>);
  hostDevicePlay("gpu19norm_gradient_parts", of<NormArguments>);
  hostDevicePlay("gpu27layer_norm_weight_gradients", of<NormArguments>);
  hostDevicePlay("gpu7softmax", of<RowArguments>);
  hostDevicePlay("gpu16softmax_gradient", of<RowArguments>);
  hostDevicePlay("gpu12channel_sums", of<SumArguments>);
  hostDevicePlay("gpu11column_sums", of<SumArguments>);
  hostDevicePlay("gpu4pool", of<PoolArguments>);
  hostDevicePlay("gpu13pool_gradient", of<PoolArguments>);
  hostDevicePlay("gpu16look_at_gradient", of<UpdateArguments>);
  hostDevicePlay("gpu6update", of<UpdateArguments>);
  hostDevicePlay("gpu12measure_step", of<UpdateArguments>);
  hostDevicePlay("gpu15sample_of_bytes", of<BytesArguments>);
  hostDevicePlay("gpu13squared_error", of<SquaredErrorArguments>);
  hostDevicePlay("gpu22squared_error_of_parts", of<SquaredErrorArguments>);
  hostDevicePlay("gpu22squared_error_gradient", of<SquaredErrorArguments>);
  return true;
}();
}  // namespace

}  // namespace millrace::gpu
