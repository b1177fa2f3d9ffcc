// Networks that published tables are about, as profiles worked out from their architecture: what
// each layer multiplies and moves, divided by what an accelerator does of it in a millisecond.
#pragma once

#include "engine/plan/profile.h"

namespace millrace::bench {

/// An accelerator as a roofline: a layer takes the longer of multiplying and moving.
struct Accelerator {
  double flops_per_ms = 0;  ///< multiplications and additions, as direct convolution counts them
  double bytes_per_ms = 0;
  double launch_ms = 0;  ///< the least a kernel takes, and what starting it costs its host
};

/// A V100 with float32. At 17.7 TFLOP/s as counted (cuDNN's Winograd does with less) forward and
/// backward of 128 pictures through VGG-16 take 691 ms; the layers of PipeDream's published profile
/// of it add up to 673. 700 of its 900 GB/s are what kernels are taken to reach.
Accelerator v100();

/// `batch` pictures of 224 x 224 a minibatch. Simonyan and Zisserman, arXiv 1409.1556, column D.
engine::plan::Profile vgg16(int batch, const Accelerator& accelerator);

/// A module a residual block. He et al., arXiv 1512.03385.
engine::plan::Profile resnet50(int batch, const Accelerator& accelerator);

/// Eight LSTM layers of 1024 and a vocabulary of 32320, sentences of 24 tokens. Wu et al., arXiv
/// 1609.08144, as PipeDream built it. What the decoder reads of the encoder crosses every cut
/// between the two.
engine::plan::Profile gnmt8(int batch, const Accelerator& accelerator);

/// PARTIME's networks (Meloni et al., arXiv 2210.09147): `layers` convolutions of `kernel` and
/// `features` on one frame of `side` x `side`; one frame a minibatch.
engine::plan::Profile partime_cnn(int layers, int features, int kernel, int side,
                                  const Accelerator& accelerator);

}  // namespace millrace::bench
