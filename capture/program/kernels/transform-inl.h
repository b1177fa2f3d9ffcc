// Transforms of a square of pixels to where a convolution is a product, once for each instruction
// set: discrete Fourier transforms, and Winograd's (Toom-Cook) with rational points.
#if defined(MILLRACE_KERNELS_TRANSFORM) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_TRANSFORM
#undef MILLRACE_KERNELS_TRANSFORM
#else
#define MILLRACE_KERNELS_TRANSFORM
#endif

#include "capture/program/kernels/transform_numbers.h"
#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

struct Complex {
  HWY_INLINE Complex() {}  // GCC makes its own without NEON
  HWY_INLINE Complex(V re, V im) : re(re), im(im) {}
  V re, im;
};
HWY_INLINE Complex operator+(Complex a, Complex b) {
  return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
}
HWY_INLINE Complex operator-(Complex a, Complex b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
/// a + factor * b.
HWY_INLINE Complex mul_add(float factor, Complex b, Complex a) {
  const V f = hn::Set(D(), factor);
  return {hn::MulAdd(f, b.re, a.re), hn::MulAdd(f, b.im, a.im)};
}
/// a - i * b.
HWY_INLINE Complex minus_i(Complex a, Complex b) {
  return {hn::Add(a.re, b.im), hn::Sub(a.im, b.re)};
}
/// a + i * b.
HWY_INLINE Complex plus_i(Complex a, Complex b) {
  return {hn::Sub(a.re, b.im), hn::Add(a.im, b.re)};
}

/// z * exp(-2 pi i index / N).
template <int N>
HWY_INLINE Complex rotated(Complex z, int index) {
  constexpr const Roots<N>& roots = kRoots<N>;
  if (index == 0) return z;
  if (4 * index == N) return {z.im, hn::Neg(z.re)};
  const V c = hn::Set(D(), roots.cos[index]), s = hn::Set(D(), roots.sin[index]);
  return {hn::MulAdd(s, z.im, hn::Mul(c, z.re)), hn::NegMulAdd(s, z.re, hn::Mul(c, z.im))};
}

template <int N, int kFilled>
HWY_INLINE void dft(Complex (&x)[N]);

/// The transforms of x[l], x[P + l], x[2 P + l] ... for l from L on.
template <int L, int kFilled, int P, int Q>
HWY_INLINE void dft_parts(const Complex (&x)[P * Q], Complex (&parts)[P][Q]) {
  if constexpr (L < P && L < kFilled) {
#pragma GCC unroll 16
    for (int q = 0; q < Q; ++q) parts[L][q] = x[P * q + L];
    dft<Q, (kFilled - L + P - 1) / P>(parts[L]);
    dft_parts<L + 1, kFilled, P, Q>(x, parts);
  }
}

/// Sum over j of x[j] exp(-2 pi i j k / N), in place; straight-line for each N. Only the first
/// kFilled are read, the others are zeros.
template <int N, int kFilled>
HWY_INLINE void dft(Complex (&x)[N]) {
  constexpr int P = first_factor(N), Q = N / P;
  if constexpr (kFilled == 1) {
#pragma GCC unroll 16
    for (int k = 1; k < N; ++k) x[k] = x[0];
  } else if constexpr (N == 2) {
    const Complex a = x[0];
    x[0] = a + x[1];
    x[1] = a - x[1];
  } else if constexpr (N == 4) {
    const Complex a = kFilled > 2 ? x[0] + x[2] : x[0], b = kFilled > 2 ? x[0] - x[2] : x[0];
    const Complex c = kFilled > 3 ? x[1] + x[3] : x[1], d = kFilled > 3 ? x[1] - x[3] : x[1];
    x[0] = a + c;
    x[1] = minus_i(b, d);
    x[2] = a - c;
    x[3] = plus_i(b, d);
  } else if constexpr (Q == 1) {  // an odd prime: real and imaginary factors apart
    constexpr int kHalf = N / 2, kPairs = kHalf < kFilled - 1 ? kHalf : kFilled - 1;
    Complex sum[kHalf + 1], difference[kHalf + 1];
    const Complex first = x[0];
#pragma GCC unroll 8
    for (int j = 1; j <= kPairs; ++j) {
      sum[j] = N - j < kFilled ? x[j] + x[N - j] : x[j];
      difference[j] = N - j < kFilled ? x[j] - x[N - j] : x[j];
      x[0] = x[0] + sum[j];
    }
#pragma GCC unroll 8
    for (int k = 1; k <= kHalf; ++k) {
      Complex a = first, b{hn::Zero(D()), hn::Zero(D())};
#pragma GCC unroll 8
      for (int j = 1; j <= kPairs; ++j) {
        a = mul_add(kRoots<N>.cos[j * k % N], sum[j], a);
        b = mul_add(kRoots<N>.sin[j * k % N], difference[j], b);
      }
      x[k] = minus_i(a, b);
      x[N - k] = plus_i(a, b);
    }
  } else {  // Cooley and Tukey
    Complex parts[P][Q];
    dft_parts<0, kFilled>(x, parts);
#pragma GCC unroll 16
    for (int k = 0; k < Q; ++k) {
      Complex across[P];
#pragma GCC unroll 8
      for (int l = 0; l < P && l < kFilled; ++l) across[l] = rotated<N>(parts[l][k], l * k);
      dft<P, (P < kFilled ? P : kFilled)>(across);
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) x[k + Q * j] = across[j];
    }
  }
}

alignas(64) inline constexpr float kZeros[kLanes] = {};

/// A square's row in an image; what the window does not hold lies among zeros.
struct Row {
  HWY_INLINE Row(const float* image, const Window& w, int y)
      : there(y >= w.top && y < w.bottom),
        first(there ? image + y * std::ptrdiff_t(w.row) : kZeros),
        column(there ? w.column : 0),
        left(w.left),
        columns(unsigned(w.right - w.left)) {}
  HWY_INLINE V at(int x) const {
    return hn::LoadU(D(), unsigned(x - left) < columns ? first + x * column : kZeros);
  }
  bool there;
  const float* first;
  std::ptrdiff_t column;
  int left;
  unsigned columns;
};

/// Writes a square's row y, whose pixels lie as [side][lanes].
HWY_INLINE void finish_row(const float* pixels, int y, const Finish& f, const Window& w) {
  if (y < w.top || y >= w.bottom) return;
  const D d;
  const auto part = first_lanes(std::size_t(w.channels));
  const bool full = w.channels >= int(kLanes);
  const V bias = f.bias ? load_part(part, f.bias) : hn::Zero(d);
  const auto finish = [&](const auto& finished) HWY_ATTR {
    std::ptrdiff_t at = y * std::ptrdiff_t(w.row) + w.left * std::ptrdiff_t(w.column);
    for (int x = w.left; x < w.right; ++x, at += w.column) {
      const V v = finished(hn::Add(hn::Load(d, pixels + x * kLanes), bias), at);
      if (full) {
        hn::StoreU(v, d, f.image + at);
      } else {
        store_part(v, part, f.image + at);
      }
    }
  };
  if (f.mask) {
    finish([&](V v, std::ptrdiff_t at) HWY_ATTR {
      return hn::IfThenZeroElse(hn::Le(load_part(part, f.mask + at), hn::Zero(d)), v);
    });
  } else if (f.activation == Activation::kRelu) {
    finish([](V v, std::ptrdiff_t) HWY_ATTR { return relu_of(v); });
  } else if (f.activation == Activation::kSigmoid) {
    finish([](V v, std::ptrdiff_t) HWY_ATTR { return sigmoid_of(v); });
  } else {
    finish([](V v, std::ptrdiff_t) HWY_ATTR { return v; });
  }
}

/// Real squares and half of their spectrum: columns 0 to N / 2, of which the first and the last are
/// their own mirror images, so that half of each is left out. Neither way divides: both together
/// multiply by (2 N)^2.
template <int N>
struct Fourier {
  static constexpr int kHalf = N / 2;
  static constexpr int kKernel = (kHalf + 1) / 2 * 2;  ///< no kernel is larger
  static_assert(N % 2 == 0);

  /// Index of row `y` of column `k` among the frequencies.
  static int frequency(int k, int y) {
    if (k == 0) return y;
    return kHalf + 1 + (k - 1) * N + y;
  }
  static bool mirrored(int k) { return k == 0 || k == kHalf; }

  /// Columns and rows from kFilled on are zeros.
  template <int kFilled>
  static void forward(const float* image, const Window& window, Spectrum to) {
    const D d;
    Complex columns[kHalf + 1][N];
    for (int y = 0; y < kFilled; y += 2) {
      // Two real rows are one complex row.
      const Row even(image, window, y), odd(image, window, y + 1);
      if (!even.there && !odd.there) {
        for (int k = 0; k <= kHalf; ++k)
          columns[k][y] = columns[k][y + 1] = {hn::Zero(d), hn::Zero(d)};
        continue;
      }
      Complex z[N];
#pragma GCC unroll 32
      for (int x = 0; x < kFilled; ++x) z[x] = {even.at(x), odd.at(x)};
      dft<N, kFilled>(z);
#pragma GCC unroll 32
      for (int k = 0; k <= kHalf; ++k) {
        const Complex a = z[k], b = z[(N - k) % N];
        columns[k][y] = {hn::Add(a.re, b.re), hn::Sub(a.im, b.im)};
        columns[k][y + 1] = {hn::Add(a.im, b.im), hn::Sub(b.re, a.re)};
      }
    }
    for (int k = 0; k <= kHalf; ++k) {
      Complex z[N];
#pragma GCC unroll 32
      for (int y = 0; y < kFilled; ++y) z[y] = columns[k][y];
      dft<N, kFilled>(z);
      float* place = to.first + frequency(k, 0) * to.plane;
#pragma GCC unroll 32
      for (int y = 0; y <= kHalf; ++y, place += to.plane) {
        hn::Store(z[y].re, d, place);
        hn::Store(z[y].im, d, place + to.imaginary);
      }
      if (mirrored(k)) continue;
#pragma GCC unroll 32
      for (int y = kHalf + 1; y < N; ++y, place += to.plane) {
        hn::Store(z[y].re, d, place);
        hn::Store(z[y].im, d, place + to.imaginary);
      }
    }
  }

  /// The window is no larger than kWanted.
  template <int kWanted>
  static void inverse(Spectrum from, const Finish& finish, const Window& window) {
    const D d;
    Complex columns[kHalf + 1][N];
    for (int k = 0; k <= kHalf; ++k) {
      // With the parts exchanged before and after, dft() is the inverse.
      Complex z[N];
      const float* place = from.first + frequency(k, 0) * from.plane;
#pragma GCC unroll 32
      for (int y = 0; y <= kHalf; ++y, place += from.plane)
        z[y] = {hn::Load(d, place + from.imaginary), hn::Load(d, place)};
      if (mirrored(k)) {
#pragma GCC unroll 32
        for (int y = kHalf + 1; y < N; ++y) z[y] = {hn::Neg(z[N - y].re), z[N - y].im};
      } else {
#pragma GCC unroll 32
        for (int y = kHalf + 1; y < N; ++y, place += from.plane)
          z[y] = {hn::Load(d, place + from.imaginary), hn::Load(d, place)};
      }
      dft<N, N>(z);
#pragma GCC unroll 32
      for (int y = 0; y < kWanted; ++y) columns[k][y] = z[y];
    }
    for (int y = 0; y < window.bottom; y += 2) {
      Complex z[N];
#pragma GCC unroll 32
      for (int k = 0; k <= kHalf; ++k) {
        // Exchanged as they are: .im is the real part. The spectrum of row y plus i times the next.
        const Complex a = columns[k][y], b = columns[k][y + 1];
        z[k] = {hn::Add(a.re, b.im), hn::Sub(a.im, b.re)};
        if (k > 0 && k < kHalf) z[N - k] = {hn::Sub(b.im, a.re), hn::Add(a.im, b.re)};
      }
      dft<N, N>(z);
      HWY_ALIGN float even[kWanted * kLanes], odd[kWanted * kLanes];
#pragma GCC unroll 32
      for (int x = 0; x < kWanted; ++x) {
        hn::Store(z[x].im, d, even + x * kLanes);
        hn::Store(z[x].re, d, odd + x * kLanes);
      }
      finish_row(even, y, finish, window);
      finish_row(odd, y + 1, finish, window);
    }
  }

  static void spread(Side side, const float* image, const Window& window, const Spectrum& to) {
    side == Side::kWeights ? forward<kKernel>(image, window, to) : forward<N>(image, window, to);
  }
  static void gather(Side side, const Spectrum& from, const Finish& to, const Window& window) {
    side == Side::kWeights ? inverse<kKernel>(from, to, window) : inverse<N>(from, to, window);
  }
};

/// y = matrix * x. Rows or columns 1 and 2, 3 and 4 ... belong to points that differ in their sign,
/// so that even and odd elements are summed apart.
template <const auto& kMatrix>
HWY_INLINE void multiply(const V* x, V* y) {
  constexpr int kRows = kMatrix.rows, kColumns = kMatrix.columns;
  const D d;
  const auto add = [&](V sum, bool& any, float factor, V value) HWY_ATTR {
    if (factor == 0) return sum;
    const V scaled = factor == 1 ? value : hn::Mul(hn::Set(d, factor), value);
    const V made = !any          ? scaled
                   : factor == 1 ? hn::Add(sum, value)
                                 : hn::MulAdd(hn::Set(d, factor), value, sum);
    any = true;
    return made;
  };
  if constexpr (kMatrix.points_are_rows) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      if (i > 0 && kMatrix.pairs(i - 1)) continue;  // made with the one before
      V even = hn::Zero(d), odd = hn::Zero(d);
      bool any_even = false, any_odd = false;
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) {
        if (j % 2 == 0) even = add(even, any_even, kMatrix.at[i][j], x[j]);
        if (j % 2 == 1) odd = add(odd, any_odd, kMatrix.at[i][j], x[j]);
      }
      y[i] = !any_odd ? even : !any_even ? odd : hn::Add(even, odd);
      if (kMatrix.pairs(i))
        y[i + 1] = kMatrix.even_sign(i) ? hn::Sub(even, odd) : hn::Sub(odd, even);
    }
  } else {
    V sum[kColumns], difference[kColumns];
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) {
      if (!kMatrix.pairs(j)) continue;
      const V a = x[j], b = x[j + 1];
      sum[j] = hn::Add(a, b);
      difference[j] = hn::Sub(a, b);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      V total = hn::Zero(d);
      bool any = false;
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) {
        if (j > 0 && kMatrix.pairs(j - 1)) continue;
        const bool alike = (i % 2 == 0) == kMatrix.even_sign(j);
        const V value = !kMatrix.pairs(j) ? x[j] : alike ? sum[j] : difference[j];
        total = add(total, any, kMatrix.at[i][j], value);
      }
      y[i] = total;
    }
  }
}

/// F(M, R): M x M outputs of an R x R kernel from (M + R - 1)^2 products.
template <int M, int R>
struct Winograd {
  static constexpr int N = M + R - 1;

  /// To the frequencies: matrix * square * matrix^T.
  template <const auto& kMatrix>
  static void there(const float* image, const Window& window, Spectrum to) {
    constexpr int kFrom = kMatrix.columns, kTo = kMatrix.rows;
    const D d;
    V half[kFrom][kTo];
    for (int y = 0; y < kFrom; ++y) {
      const Row pixels(image, window, y);
      V row[kFrom];
#pragma GCC unroll 16
      for (int x = 0; x < kFrom; ++x) row[x] = pixels.at(x);
      multiply<kMatrix>(row, half[y]);
    }
    for (int x = 0; x < kTo; ++x) {
      V column[kFrom], made[kTo];
#pragma GCC unroll 16
      for (int y = 0; y < kFrom; ++y) column[y] = half[y][x];
      multiply<kMatrix>(column, made);
#pragma GCC unroll 16
      for (int y = 0; y < kTo; ++y) hn::Store(made[y], d, to.first + (y * N + x) * to.plane);
    }
  }

  /// From the frequencies.
  template <const auto& kMatrix>
  static void back(Spectrum from, const Finish& finish, const Window& window) {
    constexpr int kTo = kMatrix.rows;
    const D d;
    V half[N][kTo];
    HWY_ALIGN float square[kTo][kTo * kLanes];
    for (int y = 0; y < N; ++y) {
      V row[N];
#pragma GCC unroll 16
      for (int x = 0; x < N; ++x) row[x] = hn::Load(d, from.first + (y * N + x) * from.plane);
      multiply<kMatrix>(row, half[y]);
    }
    for (int x = 0; x < kTo; ++x) {
      V column[N], made[kTo];
#pragma GCC unroll 16
      for (int y = 0; y < N; ++y) column[y] = half[y][x];
      multiply<kMatrix>(column, made);
#pragma GCC unroll 16
      for (int y = 0; y < kTo; ++y) hn::Store(made[y], d, square[y] + x * kLanes);
    }
    for (int y = 0; y < kTo; ++y) finish_row(square[y], y, finish, window);
  }

  static void spread(Side side, const float* image, const Window& window, const Spectrum& to) {
    if (side == Side::kInput) return there<kInput<M, R>>(image, window, to);
    if (side == Side::kWeights) return there<kWeights<M, R>>(image, window, to);
    there<kGradient<M, R>>(image, window, to);
  }
  static void gather(Side side, const Spectrum& from, const Finish& to, const Window& window) {
    if (side == Side::kWeights) return back<kWeightGradient<M, R>>(from, to, window);
    back<kOutput<M, R>>(from, to, window);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif
