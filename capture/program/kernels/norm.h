// Group norm of an image whose channels lie side by side; instance norm is one channel a group.
#pragma once

#include <cstddef>

namespace millrace::kernels {

struct GroupNorm {
  std::size_t pixels = 0;
  int channels = 0, groups = 1;
  double eps = 0;
  /// Doubles that each call needs beside.
  std::size_t scratch() const { return 4 * std::size_t(channels); }
};

/// destination = (source - mean) * rstd * weight + bias; mean and rstd = 1 / sqrt(variance + eps)
/// of each group are left for the gradient. Weight and bias: [channels], null: 1 and 0. Sums are
/// taken in float over 64 pixels, about the first pixel's values, and in double over those.
void group_norm(const GroupNorm& norm, const float* source, const float* weight, const float* bias,
                float* destination, float* mean, float* rstd, double* scratch);

/// Of what group_norm() made of `source`. Null: not wanted.
struct GroupNormGradients {
  float* source = nullptr;
  float* weight = nullptr;
  float* bias = nullptr;
};
void group_norm_gradient(const GroupNorm& norm, const float* gradient, const float* source,
                         const float* mean, const float* rstd, const float* weight,
                         const GroupNormGradients& to, double* scratch);

}  // namespace millrace::kernels
