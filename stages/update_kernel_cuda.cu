// The guarded update as one kernel: each weight, gradient and state is read once and written once.
#include "stages/update_kernel_cuda.h"

#include <cmath>
#include <new>
#include <type_traits>

namespace millrace::stages {
namespace {

using Number = float;
using Rate = double;

// As LibTorch's kernels round: a product is fused with the sum that it goes to.
__device__ void mul_(float& a, double b) {
  a *= float(b);
}
__device__ void add_(float& a, double b) {
  a += float(b);
}
__device__ void add_(float& a, const float& b) {
  a += b;
}
__device__ void add_(float& a, const float& b, double factor) {
  a = fmaf(float(factor), b, a);
}
__device__ void div_(float& a, double b) {
  a /= float(b);
}
__device__ void lerp_(float& a, const float& b, double share) {
  a = fmaf(float(share), b - a, a);
}
__device__ void addcmul_(float& a, const float& b, const float& c, double factor) {
  a = fmaf(float(factor) * b, c, a);
}
__device__ void addcdiv_(float& a, const float& b, const float& c) {
  a += b / c;
}
__device__ void addcdiv_(float& a, const float& b, const float& c, double factor) {
  a = fmaf(float(factor), b / c, a);
}
__device__ void sqrt_of(float& a, const float& b) {
  a = sqrtf(b);
}

using std::pow, std::sqrt;
#define FORMULA __device__
#include "stages/optimizer_formulas-inl.h"
#undef FORMULA

/// Weight `i`, by what thread 0 has made of a formula for all weights of its block.
template <class Formula>
__device__ void step(const UpdateNumbers& n, const UpdatePointers& p, const Formula& formula,
                     double lr, std::int64_t i) {
  float w = p.from[i];
  if (!*p.finite) {
    p.to[i] = w;
    return;
  }
  float g = p.gradient[i] * float(n.share);
  if (n.decoupled) {
    w -= float(lr * n.weight_decay) * w;
  } else {
    g += float(n.weight_decay) * w;
  }
  float state[2], scratch;
  for (int k = 0; k < 2; ++k) state[k] = p.state.buffers[k] ? p.state.buffers[k][i] : 0;
  formula(w, g, state, scratch);
  for (int k = 0; k < 2; ++k) {
    if (p.state.buffers[k]) p.state.buffers[k][i] = state[k];
  }
  p.to[i] = w;
}

__global__ void update(UpdateNumbers n, UpdatePointers p) {
  __shared__ double room[8];  // a formula is dear to make: adam's takes two powers
  const double lr = n.lr * *p.rate;
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  Optimizers::visit(n.optimizer, [&]<class Formula>(std::type_identity<Formula>) {
    static_assert(sizeof(Formula) <= sizeof room);
    if (threadIdx.x == 0)
      new (room) Formula(n, lr, p.state.steps ? double(*p.state.steps) + 1 : 0);
    __syncthreads();
    if (i < p.count) step(n, p, *reinterpret_cast<const Formula*>(room), lr, i);
  });
}

/// After all of update() has read it.
__global__ void count_step(UpdatePointers p) {
  if (*p.finite) *p.state.steps += 1;
}

}  // namespace

// Launched by cudaLaunchKernel(), so that a host's compiler can read this file, too.
void launch_update(UpdateNumbers numbers, UpdatePointers pointers, cudaStream_t on) {
  constexpr int kThreads = 256;
  const auto blocks = unsigned((pointers.count + kThreads - 1) / kThreads);
  void* arguments[] = {&numbers, &pointers};
  cudaLaunchKernel(reinterpret_cast<const void*>(update), blocks, kThreads, arguments, 0, on);
  if (pointers.state.steps)
    cudaLaunchKernel(reinterpret_cast<const void*>(count_step), 1, 1, &arguments[1], 0, on);
}

}  // namespace millrace::stages
