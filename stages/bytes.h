// Tensors as bytes: samples' pixels, and what is stored from forward to backward.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::stages {

/// A float32 tensor in 8 bits. Each line of a picture, over all of its channels and columns, has
/// its own range, as has all of any other tensor: value = least + byte * step, where step is 1/255
/// of the range. Rounded to nearest.
struct Quantized {
  at::Tensor bytes;   ///< uint8, in the tensor's shape and layout
  at::Tensor ranges;  ///< float32 [lines, 2]: least, step
};

/// On the current stream, recordable, without a graph. Reentrant. A value that is not finite makes
/// its line so.
Quantized quantize(const at::Tensor& values);
at::Tensor dequantize(const Quantized& values);

/// Converts `bytes`, uint8 [H,W,C], to `sample`, float32 [1,C,H,W], value / 255: exactly the
/// nearest float. Both contiguous and on one device; an undefined `sample` is allocated there. On
/// the current stream, so it can be recorded once `sample` exists. Reentrant; no-grad mode.
void sample_of_bytes(const at::Tensor& bytes, at::Tensor& sample);

}  // namespace millrace::stages
