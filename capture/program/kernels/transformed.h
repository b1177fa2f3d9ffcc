// Convolutions as products in a transformed domain: what the vector file gives to the kernel.
// Internal to this folder.
#pragma once

#include <cstddef>

#include "capture/program/kernels/kernels.h"

namespace millrace::kernels {

/// FFT by the side of its squares, Winograd by F(outputs, kernel).
enum class Transform { kFft12, kFft20, kFft30, kWinograd43, kWinograd63, kWinograd45 };

/// What a square of pixels is. An FFT treats all alike.
enum class Side { kInput, kOutput, kWeights, kGradient };

/// A square's frequencies for `lanes` channels: the real part of frequency f at first + f * plane,
/// the imaginary one, if the transform has one, `imaginary` floats on.
struct Spectrum {
  float* first = nullptr;
  std::size_t plane = 0, imaginary = 0;
};

/// The part of an image that a square meets: its rows and columns [.., ..) are there. The square's
/// pixel (y, x) lies y * row + x * column after the address that goes with the window, where its
/// pixel (0, 0) is or would be.
struct Window {
  std::size_t row = 0, column = 0;  ///< floats to the next of the image
  int top = 0, bottom = 0, left = 0, right = 0;
  int channels = 0;  ///< from the address on; more than `lanes`: the first of them
};

/// The frequencies of `lanes` channels; pixels outside the window are zeros.
void spread(Transform transform, Side side, const float* image, const Window& window,
            const Spectrum& to);

/// What becomes of a square's pixels: activation(pixel + bias), or with a mask (pixel + bias),
/// zeros where it is at most 0. Bias and mask may be null; the mask lies as the image.
struct Finish {
  const float* bias = nullptr;
  Activation activation = Activation::kNone;
  const float* mask = nullptr;
  float* image = nullptr;
};
/// Writes the window's part of the square.
void gather(Transform transform, Side side, const Spectrum& from, const Finish& to,
            const Window& window);

/// For each row and column the sum over k of a[row][k] * b[k][column], of complex numbers a times
/// b's conjugate.
struct Products {
  const float* a = nullptr;
  std::size_t a_row = 0, a_k = 0, a_imaginary = 0;
  const float* b = nullptr;
  std::size_t b_k = 0, b_imaginary = 0;
  float* c = nullptr;
  std::size_t c_row = 0, c_imaginary = 0;
  int rows = 0, depth = 0, vectors = 0;  ///< vectors of columns
  bool complex = false, accumulate = false;
};
void products(const Products& p);

}  // namespace millrace::kernels
