// A bias apart from its convolution, forward and backward. Images as in kernels.h.
#pragma once

#include "capture/program/kernels/kernels.h"

namespace millrace::kernels {

/// destination = activation(source + added), where `added` is a number a channel. A team shares the
/// pixels. Source and destination may be the same address.
void add_to_channels(const Layout& layout, const float* source, const float* added,
                     Activation activation, float* destination, Share share);
/// sums = of all pixels, a number a channel. A team shares the channels.
void channel_sums(const Layout& layout, const float* source, float* sums, Share share);

}  // namespace millrace::kernels
