// A picture's bytes as a sample's floats, and back.
#pragma once


#include "io/source/frame.h"

namespace millrace::io {

/// Writes `frame` as float32 [channels][height][width], value / 255, to the frame.bytes() floats at
/// `out`. Exact: each of the 256 values is the float nearest to v / 255.
void to_planar(const Frame& frame, float* out);

/// A picture of float32 [channels][height][width] in [0, 1]; values outside are clamped.
Frame from_planar(const float* planar, int channels, int height, int width);
/// The same into `out`, whose storage is reused.
void from_planar(const float* planar, int channels, int height, int width, Frame& out);

}  // namespace millrace::io
