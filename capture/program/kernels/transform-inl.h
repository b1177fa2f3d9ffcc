// Transforms of a square of pixels in which a convolution is a product, once per instruction set:
// discrete Fourier transforms, and Winograd's (Toom-Cook) with rational points.

#include "capture/program/kernels/transform_numbers.h"
#include "capture/program/kernels/vectors-inl.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace millrace::kernels::HWY_NAMESPACE {

struct Complex {
  HWY_INLINE Complex() {}  // GCC generates its own without NEON
  HWY_INLINE Complex(V re, V im) : re(re), im(im) {}
  V re, im;
};
/// GCC copies memory 16 bytes at a time, which stalls later vector loads.
HWY_INLINE Complex copy_of(const Complex& z) {
  return {z.re, z.im};
}
HWY_INLINE Complex operator+(Complex a, Complex b) {
  return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
}
HWY_INLINE Complex operator-(Complex a, Complex b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
/// a + factor * b.
HWY_INLINE Complex mul_add(float factor, Complex b, Complex a) {
  const V f = hn::Set(d, factor);
  return {hn::MulAdd(f, b.re, a.re), hn::MulAdd(f, b.im, a.im)};
}
/// a - i * factor * b.
HWY_INLINE Complex minus_i(float factor, Complex a, Complex b) {
  if (factor == 1) return {hn::Add(a.re, b.im), hn::Sub(a.im, b.re)};
  if (factor == -1) return {hn::Sub(a.re, b.im), hn::Add(a.im, b.re)};
  const V f = hn::Set(d, factor);
  return {hn::MulAdd(f, b.im, a.re), hn::NegMulAdd(f, b.re, a.im)};
}

template <int N, unsigned kFilled, class Load, class Store>
HWY_INLINE void dft(const Load& load, const Store& store);

/// Which of the elements Q l, Q l + P, Q l + 2 P ..., mod N = P Q, are filled.
template <int P, int Q>
constexpr unsigned filled_of_part(unsigned filled, int l) {
  unsigned part = 0;
  for (int q = 0; q < Q; ++q) part |= (filled >> (Q * l + P * q) % (P * Q) & 1) << q;
  return part;
}

/// Their transforms, for l from L on.
template <int L, unsigned kFilled, int P, int Q, class Load>
HWY_INLINE void dft_parts(const Load& load, Complex (&parts)[P][Q]) {
  if constexpr (L < P) {
    dft<Q, filled_of_part<P, Q>(kFilled, L)>(
        [&](int q) HWY_ATTR { return load((Q * L + P * q) % (P * Q)); },
        [&](int k, const Complex& z) HWY_ATTR { parts[L][k] = z; });
    dft_parts<L + 1, kFilled>(load, parts);
  }
}

/// store(k, sum over j of load(j) exp(-2 pi i j k / N)) for all k; straight-line for each N. Loads
/// only the elements in the bit mask kFilled, when needed; the others are zeros.
template <int N, unsigned kFilled, class Load, class Store>
HWY_INLINE void dft(const Load& load, const Store& store) {
  constexpr int P = first_factor(N), Q = N / P;
  if constexpr (kFilled == 1) {
    const Complex z = load(0);
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) store(k, z);
  } else if constexpr (N == 2) {
    static_assert(kFilled == 3);
    const Complex a = load(0), b = load(1);
    store(0, a + b);
    store(1, a - b);
  } else if constexpr (N == 4) {
    static_assert(kFilled == 15);
    const Complex x0 = load(0), x2 = load(2), x1 = load(1), x3 = load(3);
    const Complex a = x0 + x2, b = x0 - x2, c = x1 + x3, d = x1 - x3;
    store(0, a + c);
    store(1, minus_i(1, b, d));
    store(2, a - c);
    store(3, minus_i(-1, b, d));
  } else if constexpr (Q == 1) {  // odd prime: j and N - j share a cosine, sines are +-
    constexpr int kHalf = N / 2;
    Complex sum[kHalf + 1], difference[kHalf + 1];
    float sign[kHalf + 1] = {};  // of the difference; 0: neither is there
    const Complex first = kFilled & 1 ? load(0) : Complex{hn::Zero(d), hn::Zero(d)};
    Complex total = first;
#pragma GCC unroll 8
    for (int j = 1; j <= kHalf; ++j) {
      const bool here = kFilled >> j & 1, there = kFilled >> (N - j) & 1;
      if (!here && !there) continue;
      const Complex a = load(here ? j : N - j);
      sum[j] = difference[j] = a;
      sign[j] = here ? 1 : -1;
      if (here && there) {
        const Complex b = load(N - j);
        sum[j] = a + b;
        difference[j] = a - b;
      }
      total = total + sum[j];
    }
    store(0, total);
#pragma GCC unroll 8
    for (int k = 1; k <= kHalf; ++k) {
      Complex a = first, b;
      float sine = 0;  // factor still to be applied to b
#pragma GCC unroll 8
      for (int j = 1; j <= kHalf; ++j) {
        if (sign[j] == 0) continue;
        const float s = sign[j] * kRoots<N>.sin[j * k % N];
        a = mul_add(kRoots<N>.cos[j * k % N], sum[j], a);
        if (sine == 0) {
          b = difference[j];
          sine = s;
        } else {
          b = mul_add(s / sine, difference[j], b);
        }
      }
      store(k, minus_i(sine, a, b));
      store(N - k, minus_i(-sine, a, b));
    }
  } else {  // coprime factors of Good and Thomas: no twiddle factors in between
    constexpr unsigned kParts = (1u << P) - 1;  // each has a filled element
    Complex parts[P][Q];
    dft_parts<0, kFilled>(load, parts);
#pragma GCC unroll 16
    for (int k = 0; k < Q; ++k) {
      dft<P, kParts>([&](int l) HWY_ATTR { return copy_of(parts[l][k]); },
                     [&](int j, const Complex& z)
                         HWY_ATTR { store((unit(P, Q) * j + unit(Q, P) * k) % N, z); });
    }
  }
}

alignas(64) inline constexpr float kZeros[kLanes] = {};

/// A row of a square in an image; zeros outside the window.
struct Row {
  HWY_INLINE Row(const float* image, const Window& w, int y)
      : there(y >= w.top && y < w.bottom),
        first(there ? image + y * std::ptrdiff_t(w.row) : kZeros),
        column(there ? w.column : 0),
        left(w.left),
        columns(unsigned(w.right - w.left)),
        part(first_lanes(std::size_t(w.channels))) {}
  HWY_INLINE V at(int x) const {
    return load_part(part, unsigned(x - left) < columns ? first + x * column : kZeros);
  }
  bool there;
  const float* first;
  std::ptrdiff_t column;
  int left;
  unsigned columns;
  Lanes part;
};

/// Writes a square's row y of pixels [side][lanes].
HWY_INLINE void finish_row(const float* pixels, int y, const Finish& f, const Window& w) {
  if (y < w.top || y >= w.bottom) return;
  const auto part = first_lanes(std::size_t(w.channels));
  const bool full = w.channels >= int(kLanes);
  const V bias = f.bias ? load_part(part, f.bias) : hn::Zero(d);
  with_finish(f, [&](const auto& finished) HWY_ATTR {
    std::ptrdiff_t at = y * std::ptrdiff_t(w.row) + w.left * std::ptrdiff_t(w.column);
    for (int x = w.left; x < w.right; ++x, at += w.column) {
      const V v = finished(hn::Add(hn::Load(d, pixels + x * kLanes), bias),
                           [&]() HWY_ATTR { return load_part(part, f.mask + at); });
      if (full) {
        hn::StoreU(v, d, f.to + at);
      } else {
        store_part(v, part, f.to + at);
      }
    }
  });
}

/// Real squares and half of their spectrum: columns 0 to N / 2, the first and last of which mirror
/// themselves, so half of each is left out. Only weights are scaled, for both directions.
template <int N>
struct Fourier {
  static constexpr int kHalf = N / 2;
  static constexpr float kScale = 1.0f / (4 * N * N);
  static constexpr int kKernel = (kHalf + 1) / 2 * 2;  ///< the largest kernel
  static_assert(N % 2 == 0);

  /// Offset in floats of frequency y of column k.
  static std::ptrdiff_t place(const Spectrum& s, int k, int y) {
    return std::ptrdiff_t(k == 0 ? y : kHalf + 1 + (k - 1) * N + y) * std::ptrdiff_t(s.plane);
  }
  HWY_INLINE static void store(Complex z, const Spectrum& s, int k, int y) {
    float* const to = s.first + place(s, k, y);
    hn::Store(z.re, d, to);
    hn::Store(z.im, d, to + kLanes);
  }
  HWY_INLINE static Complex load(const Spectrum& s, int k, int y) {
    const float* const from = s.first + place(s, k, y);
    return {hn::Load(d, from), hn::Load(d, from + kLanes)};
  }

  /// Splits the transform of x + i y (`a` is element k, `b` element -k) into 2 x's and 2 y's.
  HWY_INLINE static void split(const Complex& a, const Complex& b, Complex& first,
                               Complex& second) {
    first = {hn::Add(a.re, b.re), hn::Sub(a.im, b.im)};
    second = {hn::Add(a.im, b.im), hn::Sub(b.re, a.re)};
  }
  /// The inverse, with real and imaginary parts swapped.
  HWY_INLINE static void join(const Complex& first, const Complex& second, Complex& a, Complex& b) {
    a = {hn::Add(first.im, second.re), hn::Sub(first.re, second.im)};
    b = {hn::Sub(second.re, first.im), hn::Add(first.re, second.im)};
  }

  template <bool kWeights>
  static void forward(const float* image, const Window& window, const Spectrum& to) {
    constexpr int kFilled = kWeights ? kKernel : N;  // columns and rows; the others are zeros
    constexpr unsigned kBits = (1u << kFilled) - 1;
    const auto scaled = [&](V v) HWY_ATTR { return kWeights ? hn::Mul(hn::Set(d, kScale), v) : v; };
    Complex columns[kHalf][N];  // column 0 and, as its imaginary part, column N / 2
    for (int y = 0; y < kFilled; y += 2) {
      // Two real rows form one complex row.
      const Row even(image, window, y), odd(image, window, y + 1);
      if (!even.there && !odd.there) {
        for (auto& column : columns) {
          column[y] = {hn::Zero(d), hn::Zero(d)};
          column[y + 1] = {hn::Zero(d), hn::Zero(d)};
        }
        continue;
      }
      Complex z[N];
      dft<N, kBits>(
          [&](int x) HWY_ATTR {
            return Complex{scaled(even.at(x)), scaled(odd.at(x))};
          },
          [&](int k, const Complex& made) HWY_ATTR { z[k] = made; });
      columns[0][y] = {z[0].re, z[kHalf].re};
      columns[0][y + 1] = {z[0].im, z[kHalf].im};
#pragma GCC unroll 32
      for (int k = 1; k < kHalf; ++k) split(z[k], z[N - k], columns[k][y], columns[k][y + 1]);
    }
    Complex z[N];
    dft<N, kBits>([&](int y) HWY_ATTR { return copy_of(columns[0][y]); },
                  [&](int y, const Complex& made) HWY_ATTR { z[y] = made; });
#pragma GCC unroll 32
    for (int y = 0; y <= kHalf; ++y) {
      Complex first, last;
      split(z[y], z[(N - y) % N], first, last);
      store(first, to, 0, y);
      store(last, to, kHalf, y);
    }
    for (int k = 1; k < kHalf; ++k) {
      dft<N, kBits>([&](int y) HWY_ATTR { return copy_of(columns[k][y]); },
                    [&](int y, const Complex& made) HWY_ATTR { store(made, to, k, y); });
    }
  }

  template <bool kWeights>
  static void inverse(const Spectrum& from, const Finish& finish, const Window& window) {
    constexpr int kWanted = kWeights ? kKernel : N;  // the window is no larger
    constexpr unsigned kBits = (1u << N) - 1;
    const auto scaled = [&](V v) HWY_ATTR { return kWeights ? hn::Mul(hn::Set(d, kScale), v) : v; };
    Complex columns[kHalf][N];  // as in forward()
    // With real and imaginary parts swapped before and after, dft() is the inverse.
    const auto to_column = [&](int k) HWY_ATTR {
      return [&columns, k](int y, const Complex& z) HWY_ATTR {
        if (y < kWanted) columns[k][y] = {z.im, z.re};
      };
    };
    Complex z[N];
#pragma GCC unroll 32
    for (int y = 0; y <= kHalf; ++y)
      join(load(from, 0, y), load(from, kHalf, y), z[y], z[(N - y) % N]);
    dft<N, kBits>([&](int y) HWY_ATTR { return copy_of(z[y]); }, to_column(0));
    for (int k = 1; k < kHalf; ++k) {
      dft<N, kBits>(
          [&](int y) HWY_ATTR {
            const Complex f = load(from, k, y);
            return Complex{f.im, f.re};
          },
          to_column(k));
    }
    for (int y = 0; y < window.bottom; y += 2) {
      const Complex &first = columns[0][y], &second = columns[0][y + 1];
      z[0] = {second.re, first.re};
      z[kHalf] = {second.im, first.im};
#pragma GCC unroll 32
      for (int k = 1; k < kHalf; ++k) join(columns[k][y], columns[k][y + 1], z[k], z[N - k]);
      HWY_ALIGN float even[kWanted * kLanes], odd[kWanted * kLanes];
      dft<N, kBits>([&](int k) HWY_ATTR { return copy_of(z[k]); },
                    [&](int x, const Complex& made) HWY_ATTR {
                      if (x >= kWanted) return;
                      hn::Store(scaled(made.im), d, even + x * kLanes);
                      hn::Store(scaled(made.re), d, odd + x * kLanes);
                    });
      finish_row(even, y, finish, window);
      finish_row(odd, y + 1, finish, window);
    }
  }

  static void spread(Side side, const float* image, const Window& window, const Spectrum& to) {
    side == Side::kWeights ? forward<true>(image, window, to) : forward<false>(image, window, to);
  }
  static void gather(Side side, const Spectrum& from, const Finish& to, const Window& window) {
    side == Side::kWeights ? inverse<true>(from, to, window) : inverse<false>(from, to, window);
  }
};

/// y = matrix * x. Rows or columns 1 and 2, 3 and 4 ... belong to points +-p and are paired.
template <const auto& kMatrix>
HWY_INLINE void multiply(const V* x, V* y) {
  constexpr int kRows = kMatrix.rows, kColumns = kMatrix.columns;
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
      if (i > 0 && kMatrix.pairs(i - 1)) continue;  // computed with the one before
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
        const V value = !kMatrix.pairs(j)                      ? x[j]
                        : (i % 2 == 0) == kMatrix.even_sign(j) ? sum[j]
                                                               : difference[j];
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
  static constexpr auto kInput = WinogradMatrices<M, R>().input;
  static constexpr auto kWeights = WinogradMatrices<M, R>().weights;
  static constexpr auto kGradient = WinogradMatrices<M, R>().gradient;
  static constexpr auto kOutput = kGradient.transposed();
  static constexpr auto kWeightGradient = kWeights.transposed();

  /// To frequencies: matrix * square * matrix^T.
  template <const auto& kMatrix>
  static void there(const float* image, const Window& window, Spectrum to) {
    constexpr int kFrom = kMatrix.columns, kTo = kMatrix.rows;
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

  template <const auto& kMatrix>
  static void back(Spectrum from, const Finish& finish, const Window& window) {
    constexpr int kTo = kMatrix.rows;
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
    if (side == Side::kInput) return there<kInput>(image, window, to);
    if (side == Side::kWeights) return there<kWeights>(image, window, to);
    there<kGradient>(image, window, to);
  }
  static void gather(Side side, const Spectrum& from, const Finish& to, const Window& window) {
    if (side == Side::kWeights) return back<kWeightGradient>(from, to, window);
    back<kOutput>(from, to, window);
  }
};

}  // namespace millrace::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
