// The guarded update as one kernel: each weight, gradient and state is read once and written once.
#include "stages/update_kernel_cuda.h"

namespace millrace::stages {
namespace {

/// What an adam step has in common for all weights. Dear: two powers in double precision.
struct AdamScale {
  float step, root;
};

__device__ AdamScale adam_scale(const UpdateNumbers& n, double lr, double steps) {
  const double unbias1 = 1 - pow(n.beta1, steps), unbias2 = 1 - pow(n.beta2, steps);
  return {float(lr / unbias1), float(sqrt(unbias2))};
}

__device__ float adam(const UpdateNumbers& n, const UpdatePointers& p, std::int64_t i, float w,
                      float g, double lr, const AdamScale& scale) {
  if (n.decoupled) w -= float(lr * n.weight_decay) * w;
  const float mean = p.first[i] + float(1 - n.beta1) * (g - p.first[i]);
  const float square = float(n.beta2) * p.second[i] + float(1 - n.beta2) * g * g;
  p.first[i] = mean;
  p.second[i] = square;
  return w - scale.step * (mean / (sqrtf(square) / scale.root + float(n.eps)));
}

__device__ float rmsprop(const UpdateNumbers& n, const UpdatePointers& p, std::int64_t i, float w,
                         float g, float lr) {
  const float square = float(n.alpha) * p.second[i] + float(1 - n.alpha) * g * g;
  p.second[i] = square;
  float change = g / (sqrtf(square) + float(n.eps));
  if (n.momentum != 0) p.first[i] = change = float(n.momentum) * p.first[i] + change;
  return w - lr * change;
}

__device__ float sgd(const UpdateNumbers& n, const UpdatePointers& p, std::int64_t i, float w,
                     float g, float lr) {
  if (n.momentum == 0) return w - lr * g;
  const float momentum = float(n.momentum) * p.first[i] + g;
  p.first[i] = momentum;
  return w - lr * (float(n.spike_momentum) * momentum + float(n.spike_gradient) * g);
}

__global__ void update(UpdateNumbers n, UpdatePointers p) {
  const double lr = n.lr * *p.rate;
  __shared__ AdamScale scale;
  if (threadIdx.x == 0 && n.rule == UpdateRule::adam)
    scale = adam_scale(n, lr, double(*p.steps) + 1);
  __syncthreads();
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= p.count) return;
  const float w = p.from[i];
  if (!*p.finite) {
    p.to[i] = w;
    return;
  }
  float g = p.gradient[i] * float(n.share);
  if (!n.decoupled) g += float(n.weight_decay) * w;
  if (n.rule == UpdateRule::adam) p.to[i] = adam(n, p, i, w, g, lr, scale);
  if (n.rule == UpdateRule::rmsprop) p.to[i] = rmsprop(n, p, i, w, g, float(lr));
  if (n.rule == UpdateRule::sgd) p.to[i] = sgd(n, p, i, w, g, float(lr));
}

/// After all of update() has read it.
__global__ void count_step(UpdatePointers p) {
  if (*p.finite) *p.steps += 1;
}

}  // namespace

// Launched by cudaLaunchKernel(), so that a host's compiler can read this file, too.
void launch_update(UpdateNumbers numbers, UpdatePointers pointers, cudaStream_t on) {
  constexpr int kThreads = 256;
  const auto blocks = unsigned((pointers.count + kThreads - 1) / kThreads);
  void* arguments[] = {&numbers, &pointers};
  cudaLaunchKernel(reinterpret_cast<const void*>(update), blocks, kThreads, arguments, 0, on);
  if (numbers.rule == UpdateRule::adam)
    cudaLaunchKernel(reinterpret_cast<const void*>(count_step), 1, 1, &arguments[1], 0, on);
}

}  // namespace millrace::stages
