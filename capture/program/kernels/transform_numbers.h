// Squares of pixels and constants of their transforms. Internal to this folder.
#pragma once

#include <cstddef>

#include "capture/program/kernels/internal.h"

namespace millrace::kernels {

/// FFT by side of the square, Winograd by F(outputs, kernel).
enum class Transform { kFft12, kFft20, kFft30, kWinograd43, kWinograd63, kWinograd45 };

/// What a square of pixels is. An FFT treats all alike.
enum class Side { kInput, kOutput, kWeights, kGradient };

/// A square's frequencies for `lanes` channels: real parts of frequency f at first + f * plane,
/// imaginary parts, if any, one vector later.
struct Spectrum {
  float* first = nullptr;
  std::size_t plane = 0;
};

/// The part of an image under a square: rows [top, bottom) and columns [left, right) exist. The
/// square's pixel (y, x) is y * row + x * column floats after the window's address.
struct Window {
  std::size_t row = 0, column = 0;  ///< strides in floats
  int top = 0, bottom = 0, left = 0, right = 0;
  int channels = 0;           ///< from the address on; if more than `lanes`, the first of them
  std::ptrdiff_t offset = 0;  ///< floats from the image's pixel (0, 0) to that address
};

/// A transform for one instruction set.
struct Functions {
  /// The frequencies of `lanes` channels; pixels outside the window are zeros.
  void (*spread)(Side side, const float* image, const Window& window, const Spectrum& to) = nullptr;
  /// Writes the window's part of the square.
  void (*gather)(Side side, const Spectrum& from, const Finish& to, const Window& window) = nullptr;
};

/// 4 if it divides n, else its smallest prime factor.
constexpr int first_factor(int n) {
  if (n % 4 == 0) return 4;
  for (int factor = 2; factor < n; ++factor) {
    if (n % factor == 0) return factor;
  }
  return n;
}

/// The index below P Q that is 1 mod P and 0 mod Q, for coprime P and Q.
consteval int unit(int p, int q) {
  int index = q;
  while (index % p != 1) index += q;
  return index;
}

/// cos and sin of 2 pi i / N, for the odd prime factors of the squares' sides.
template <int N>
struct Roots {
  float cos[N], sin[N];
};
template <int N>
extern const Roots<N> kRoots;
template <>
inline constexpr Roots<3> kRoots<3> = {{1, -0.5f, -0.5f}, {0, 0.8660254f, -0.8660254f}};
template <>
inline constexpr Roots<5> kRoots<5> = {{1, 0.309017f, -0.809017f, -0.809017f, 0.309017f},
                                       {0, 0.95105654f, 0.58778524f, -0.58778524f, -0.95105654f}};

template <int Rows, int Columns>
struct Factors {
  static constexpr int rows = Rows, columns = Columns;
  float at[Rows][Columns] = {};
  bool points_are_rows = true;

  /// Whether row or column i belongs to a point p > 0 and the next one to -p.
  constexpr bool pairs(int i) const {
    return i % 2 == 1 && i + 2 < (points_are_rows ? Rows : Columns);
  }
  /// Whether the pair's even powers are equal; else the odd ones are.
  constexpr bool even_sign(int i) const {
    for (int power = 0; power < (points_are_rows ? Columns : Rows); ++power) {
      const float p = points_are_rows ? at[i][power] : at[power][i];
      const float minus_p = points_are_rows ? at[i + 1][power] : at[power][i + 1];
      if (p != 0) return (p == minus_p) == (power % 2 == 0);
    }
    return true;
  }
  constexpr Factors<Columns, Rows> transposed() const {
    Factors<Columns, Rows> made;
    made.points_are_rows = !points_are_rows;
    for (int i = 0; i < Rows; ++i) {
      for (int j = 0; j < Columns; ++j) made.at[j][i] = at[i][j];
    }
    return made;
  }
};

/// F(M, R) at points 0, +-p, +-q ... and infinity, after Toom and Cook, as in Lavin and Gray (arXiv
/// 1509.09308). The points of F(4, 3) had the smallest error of many tried.
template <int M, int R>
struct WinogradMatrices {
  static constexpr int N = M + R - 1;
  Factors<N, N> input;
  Factors<N, R> weights;
  Factors<N, M> gradient;

  constexpr WinogradMatrices() {
    constexpr double kAccurate[] = {0, 0.625, -0.625, 1.5, -1.5};
    constexpr double kOther[] = {0, 1, -1, 2, -2, 0.5, -0.5};
    double points[N - 1] = {};
    for (int i = 0; i < N - 1; ++i) points[i] = N == 6 ? kAccurate[i] : kOther[i];
    for (int i = 0; i < N; ++i) {
      const bool infinity = i == N - 1;
      // The product of x - q over all other points, its value at this one.
      double product[N + 1] = {1}, value = 1;
      for (int j = 0, degree = 0; j < N - 1; ++j) {
        if (j == i) continue;
        if (!infinity) value *= points[i] - points[j];
        for (int k = ++degree; k > 0; --k) product[k] = product[k - 1] - points[j] * product[k];
        product[0] *= -points[j];
      }
      double largest = 0, scale = 1;
      for (double c : product) largest = c > largest ? c : -c > largest ? -c : largest;
      while (!infinity && largest * scale > 4) scale /= 2;
      for (int k = 0; k < N; ++k) input.at[i][k] = float(product[k] * scale);
      double power = 1;
      for (int k = 0; k < N; ++k, power *= infinity ? 0 : points[i]) {
        if (k < R) weights.at[i][k] = float(infinity ? k == R - 1 : power / value / scale);
        if (k < M) gradient.at[i][k] = float(infinity ? k == M - 1 : power);
      }
    }
  }
};

}  // namespace millrace::kernels
