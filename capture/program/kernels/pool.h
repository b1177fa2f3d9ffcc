// Pooling of images whose channels lie side by side, and its gradient. A team shares the channels.
#pragma once

#include "capture/program/kernels/kernels.h"

namespace millrace::kernels {

struct Pool {
  Layout input, output;
  TapGrid window;
  bool largest = false;      ///< of a window, the first if there are several; else its mean
  bool counts_zeros = true;  ///< the mean: what lies outside counts as zeros, else not at all
  float divisor = 0;         ///< of the sum, if not the number of taps
};

void pool(const Pool& pool, const float* x, float* y, Share share);
/// \param x read for the largest alone, which a gradient goes to.
void pool_gradient(const Pool& pool, const float* dy, const float* x, float* dx, Share share);

}  // namespace millrace::kernels
