// Group norm of an image whose channels lie side by side; instance norm is one channel a group.
// Batch norm with the statistics of earlier samples is that, too, with nothing to measure.
#pragma once

#include <cstddef>

#include "capture/program/kernels/team.h"

namespace millrace::kernels {

struct GroupNorm {
  std::size_t pixels = 0;
  int channels = 0, groups = 1;
  double eps = 0;
  bool frozen = false;  ///< mean and variance are given, a channel a group
  /// Doubles that each call needs beside.
  std::size_t scratch() const { return 4 * std::size_t(channels); }
};

/// Images are [pixels][channels], the rest [channels] or [groups].
struct GroupNormOperands {
  const float* gradient = nullptr;  ///< of the output: read by the gradient
  const float* source = nullptr;    ///< of the norm: read
  const float* weight = nullptr;    ///< [channels], read; null: 1
  const float* bias = nullptr;      ///< [channels], read by the norm; null: 0
  float* mean =
      nullptr;  ///< [groups], written by the norm, read by the gradient; if frozen, by both
  float* rstd = nullptr;         ///< likewise: 1 / sqrt(variance + eps); if frozen, the variance
  float* destination = nullptr;  ///< written: output, or the source's gradient (null: unwanted)
  float* weight_gradient = nullptr;  ///< [channels], written by the gradient; null: unwanted
  float* bias_gradient = nullptr;    ///< likewise
  double* scratch = nullptr;         ///< GroupNorm::scratch(), the same in every phase
};

// In three phases, as Kernel has them: a team shares the first and the last, the second is one
// thread's alone.

/// destination = (source - mean) * rstd * weight + bias. Sums are taken in float over 64 pixels,
/// about the first pixel's values, and in double over those.
void group_norm(const GroupNorm& norm, const GroupNormOperands& operands, int phase, Share share);
void group_norm_gradient(const GroupNorm& norm, const GroupNormOperands& operands, int phase,
                         Share share);

}  // namespace millrace::kernels
