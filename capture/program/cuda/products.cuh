// Sums of products for a tile, by FMA in threads or by tensor cores in warps.
//
// mma.sync multiplies 16 rows of a by 8 columns of b, 8 numbers deep (bfloat16: 16). A lane has
// rows lane / 4 and 8 more of a, column lane / 4 of b, at depths lane % 4 and 4 more; and of the
// sums rows lane / 4 and 8 more, columns lane % 4 * 2 and the next.
#pragma once

#include "capture/program/cuda/device.cuh"

namespace millrace::gpu {

/// Most taps whose sums are unrolled: beyond that compiling takes minutes.
constexpr int kMostUnrolled = 15 * 15;

/// Rounds to TF32; the tensor core ignores the remaining bits.
DEVICE unsigned rounded_tf32(float value) {
  return float_bits(value) + 0x1000u;
}
/// For values that may be NaN: a GPU's NaN, 0x7fffffff, would become zero.
DEVICE unsigned rounded_tf32_or_nan(float value) {
  constexpr int kMost = 0x7fffefff;
  const int bits = int(float_bits(value));
  return unsigned(bits < kMost ? bits : kMost) + 0x1000u;
}
/// The remainder after TF32, itself exact in TF32.
DEVICE float rest_of_tf32(float value) {
  return value - bits_float(float_bits(value) & 0xffffe000u);
}

/// A lane's part of a matrix in `kCount` registers, for one kind of products. Weights: kFinite.
template <Products kProducts, int kCount, bool kFinite = false>
struct Lane {
  unsigned high[kCount], low[kProducts == Products::exact_tf32 ? kCount : 1];

  DEVICE void set(int i, float value) {
    if constexpr (kProducts == Products::exact_tf32) {
      high[i] = float_bits(value);
      low[i] = float_bits(rest_of_tf32(value));
    } else {
      high[i] = kFinite ? rounded_tf32(value) : rounded_tf32_or_nan(value);
    }
  }
  DEVICE void set(int i, float first, float second) { high[i] = two_halves(first, second); }
};

/// sums += a b. Exact: three TF32 products, the smallest first.
template <Products kProducts, bool kFinite>
DEVICE void add_product(float (&sums)[4], const Lane<kProducts, 4, kFinite>& a, unsigned b0,
                        unsigned b1, unsigned low0, unsigned low1) {
  if constexpr (kProducts == Products::half) {
    multiply_halves(sums, a.high, b0, b1);
  } else {
    if constexpr (kProducts == Products::exact_tf32) {
      multiply_tf32(sums, a.low, b0, b1);
      multiply_tf32(sums, a.high, low0, low1);
    }
    multiply_tf32(sums, a.high, b0, b1);
  }
}

/// Tensor cores truncate what they add, so long sums are added up outside.
template <int kCount>
DEVICE void promote(float* sums, float* totals) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    totals[i] += sums[i];
    sums[i] = 0;
  }
}

/// Position of four adjacent outputs of a tile.
struct TilePlace {
  int channel, y, x;
};

/// For a convolution's tile; `Cut` says how the work is split.
template <class Cut, Products kProducts>
class TileSums {
  static constexpr ConvolutionPlan kPlan = Cut::plan;
  static constexpr ConvolutionTile kTile = Cut::tile;
  static constexpr int kM = kTile.channels / 16, kBlocks = kTile.chunk / 8;
  static constexpr int kDepth = kProducts == Products::half ? 2 : 1;    ///< in groups of 8 channels
  static constexpr int kAcross = kTile.width / 4, kDown = 8 / kAcross;  ///< runs of a warp's 8
  static constexpr int kRuns = kTile.run / kDown;
  static constexpr int kWarps = kTile.block_channels / kTile.channels;  ///< side by side
  static constexpr bool kPromotes = kProducts == Products::exact_tf32;

 public:
  DEVICE TileSums(int owner, int part) : owner(owner), part(part) {}

  DEVICE static int weight_place(int in, int tap, int out) {
    return ((out / 16 * kBlocks + in / 8) * kPlan.taps + tap) * kPlan.weight_row +
           (out % 8 * 4 + in % 4) * 4 + out % 16 / 8 + in % 8 / 4 * 2;
  }
  DEVICE static TilePlace place(int owner, int v) {
    const int warp = owner / 32, lane = owner % 32;
    const int run = lane % 4 * 2 + v % 2, m = v / (4 * kRuns), r = v / 4 % kRuns;
    return {(warp % kWarps * kM + m) * 16 + lane / 4 + v / 2 % 2 * 8,
            (warp / kWarps * kRuns + r) * kDown + run / kAcross, run % kAcross * 4};
  }
  DEVICE float4 four(int v) const {
    const float* const of =
        (kPromotes ? &totals[0][0][0][0] : &sums[0][0][0][0]) + v / 4 * 16 + v % 4;
    return make_float4(of[0], of[4], of[8], of[12]);
  }

  DEVICE void add(const float* input, const float* weights) {
#pragma unroll 1
    for (int c = part * kDepth; c < kBlocks; c += kTile.parts * kDepth) {
#pragma unroll 1
      for (int ky = 0; ky < kPlan.y.taps; ++ky) add_row(input, weights, c, ky);
    }
  }

 private:
  static constexpr int kWindow = kPlan.run.window;

  DEVICE void add_row(const float* input, const float* weights, int c, int ky) {
    const int lane = owner % 32, warp = owner / 32;
    Lane<kProducts, kWindow> window[kRuns][2];
#pragma unroll
    for (int r = 0; r < kRuns; ++r) read_window(window[r], input, c, ky, r);
#pragma unroll
    for (int kx = 0; kx < kPlan.x.taps; ++kx) {
      Lane<kProducts, 4, true> a[kM];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        const float* const from =
            weights + lane * 4 +
            (((warp % kWarps * kM + m) * kBlocks + c) * kPlan.taps + ky * kPlan.x.taps + kx) *
                kPlan.weight_row;
        float own[4 * kDepth];
        load<4>(own, from);
        if constexpr (kDepth == 2) {
          load<4>(own + 4, from + kPlan.taps * kPlan.weight_row);
          a[m].set(0, own[0], own[2]), a[m].set(1, own[1], own[3]);
          a[m].set(2, own[4], own[6]), a[m].set(3, own[5], own[7]);
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) a[m].set(i, own[i]);
        }
      }
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int r = 0; r < kRuns; ++r) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int at = kPlan.run.skip + j * kPlan.x.step + kx * kPlan.x.dilation;
            constexpr int kLow = kPromotes ? 1 : 0;
            add_product(sums[m][r][j], a[m], window[r][0].high[at], window[r][1].high[at],
                        window[r][0].low[at * kLow], window[r][1].low[at * kLow]);
          }
        }
      }
    }
    if constexpr (kPromotes) promote<kM * kRuns * 16>(&sums[0][0][0][0], &totals[0][0][0][0]);
  }

  /// A row of the lane's two channels; for bfloat16, two of four.
  DEVICE void read_window(Lane<kProducts, kWindow> (&to)[2], const float* input, int c, int ky,
                          int r) const {
    const int lane = owner % 32,
              row = (owner / 32 / kWarps * kRuns + r) * kDown + lane / 4 / kAcross;
    const float* const from = input + (c * 8 + lane % 4) * kPlan.plane +
                              (row * kPlan.y.step + ky * kPlan.y.dilation) * kPlan.row +
                              lane / 4 % kAcross * 4 * kPlan.x.step + kPlan.run.first;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float first[kWindow];
      load<kWindow>(first, from + (kDepth * h) * 4 * kPlan.plane);
      if constexpr (kDepth == 2) {
        float second[kWindow];
        load<kWindow>(second, from + (2 * h + 1) * 4 * kPlan.plane);
#pragma unroll
        for (int i = 0; i < kWindow; ++i) to[h].set(i, first[i], second[i]);
      } else {
#pragma unroll
        for (int i = 0; i < kWindow; ++i) to[h].set(i, first[i]);
      }
    }
  }

  const int owner, part;
  float sums[kM][kRuns][4][4] = {};  ///< [16 channels][run of rows][neighbour][of the lane]
  float totals[kPromotes ? kM : 1][kPromotes ? kRuns : 1][4][4] = {};
};

template <class Cut>
class TileSums<Cut, Products::fma> {
  static constexpr ConvolutionPlan kPlan = Cut::plan;
  static constexpr ConvolutionTile kTile = Cut::tile;
  static constexpr int kRunsOfRow = kTile.width / kTile.run, kPlaces = kRunsOfRow * kTile.height;

 public:
  DEVICE TileSums(int owner, int part) : owner(owner), part(part) {}

  DEVICE static int weight_place(int in, int tap, int out) {
    return (in * kPlan.taps + tap) * kPlan.weight_row + out;
  }
  DEVICE static TilePlace place(int owner, int v) {
    constexpr int kFours = kTile.run / 4;
    return {owner / kPlaces * kTile.channels + v / kFours, owner % kPlaces / kRunsOfRow,
            owner % kPlaces % kRunsOfRow * kTile.run + v % kFours * 4};
  }
  DEVICE float4 four(int v) const {
    const float* const of = &sums[0][0] + v * 4;
    return make_float4(of[0], of[1], of[2], of[3]);
  }

  DEVICE void add(const float* input, const float* weights) {
    const int place = owner % kPlaces;
    input += place / kRunsOfRow * kPlan.y.step * kPlan.row +
             place % kRunsOfRow * kTile.run * kPlan.x.step + kPlan.run.first;
    weights += owner / kPlaces * kTile.channels;
    // With few sums, or in a block alone on an SM, registers suffice for all rows of taps at once.
    [[maybe_unused]] constexpr int kUnroll =
        kPlan.y.taps * kPlan.x.taps <= kMostUnrolled &&
                (kTile.channels * kTile.run <= 32 ||
                 (kPlan.y.taps <= 3 && kTile.threads(Products::fma) > 256))
            ? kPlan.y.taps
            : 1;
    constexpr int kOwn = divided_up(kTile.chunk, kTile.parts);
#pragma unroll 1
    for (int c = part * kOwn; c < (part + 1) * kOwn; ++c) {
#pragma unroll kUnroll
      for (int ky = 0; ky < kPlan.y.taps; ++ky) {
        float window[kPlan.run.window];
        load<kPlan.run.window>(window, input + c * kPlan.plane + ky * kPlan.y.dilation * kPlan.row);
#pragma unroll
        for (int kx = 0; kx < kPlan.x.taps; ++kx) {
          float w[kTile.channels];
          load<kTile.channels>(w, weights + weight_place(c, ky * kPlan.x.taps + kx, 0));
#pragma unroll
          for (int o = 0; o < kTile.channels; ++o) {
#pragma unroll
            for (int p = 0; p < kTile.run; ++p)
              sums[o][p] =
                  fmaf(w[o], window[kPlan.run.skip + p * kPlan.x.step + kx * kPlan.x.dilation],
                       sums[o][p]);
          }
        }
      }
    }
  }

 private:
  const int owner, part;
  float sums[kTile.channels][kTile.run] = {};
};

}  // namespace millrace::gpu
