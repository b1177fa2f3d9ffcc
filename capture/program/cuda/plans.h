// How GPU convolutions split their work, for both kernels and launchers.
#pragma once

#include "capture/program/kernels/arguments.h"

namespace millrace::gpu {

using kernels::divided_up;

PLAN int rounded_up(int a, int to) {
  return divided_up(a, to) * to;
}
PLAN int most(int a, int b) {
  return a > b ? a : b;
}
/// `floats` rounded up to a multiple of 4 with one of two remainders mod 32: planes of that size
/// begin in different banks of shared memory.
PLAN int banked(int floats, int one, int other) {
  floats = rounded_up(floats, 4);
  while (floats % 32 != one && floats % 32 != other) floats += 4;
  return floats;
}

/// A window's taps along one side: inputs of adjacent outputs are `step` apart, taps `dilation`;
/// image pixels are `apart` with zeros in between, after `pad` zeros.
struct Side {
  int taps, step, apart, dilation, pad;
  PLAN int reach() const { return (taps - 1) * dilation + 1; }
};
/// How the forward or the data gradient moves over its input.
PLAN Side side_of(const kernels::Taps& t, bool gradient) {
  return gradient ? Side{t.count, 1, t.stride, t.dilation, (t.count - 1) * t.dilation - t.padding}
                  : Side{t.count, t.stride, 1, t.dilation, t.padding};
}

/// Whether the fours that eight threads load at a time, `across` of them `along` floats apart and
/// the next ones `down`, lie in different banks.
PLAN bool fours_apart(int across, int along, int down) {
  unsigned met = 0;
  for (int place = 0; place < 8; ++place)
    met |= 1u << (place / across * down + place % across * along) / 4 % 8;
  return met == 0xff;
}

template <int kRows, int kColumns, int kStepY, int kStepX, int kDilationY, int kDilationX,
          int kPadY, int kPadX>
struct Window {
  static PLAN Side rows(bool gradient) {
    return side_of({kRows, kStepY, kPadY, kDilationY}, gradient);
  }
  static PLAN Side columns(bool gradient) {
    return side_of({kColumns, kStepX, kPadX, kDilationX}, gradient);
  }
};

/// The inputs of a row that a thread reads for `pixels` adjacent outputs.
struct Run {
  int lead;         ///< columns before the tile's first, so that fours are aligned in the image
  int first, skip;  ///< they begin at first + skip
  int window;       ///< how many, including those read for alignment

  PLAN Run(const Side& side, int pixels)
      : lead(side.step != 1 ? side.pad
             : side.pad > 0 ? rounded_up(side.pad, 4)
                            : 0),
        first((lead - side.pad) / 4 * 4),
        skip((lead - side.pad) % 4),
        window(rounded_up(skip + (pixels - 1) * side.step + side.reach(), 4)) {}
};

/// Precision of the factors; half: bfloat16. Exact: each factor is split into two TF32.
enum class Products { fma, tf32, exact_tf32, half };
PLAN bool by_tensor_cores(Products products) {
  return products != Products::fma;
}

/// A block computes a tile of pixels of some channels from `chunk` input channels at a time. With
/// FMA, a thread computes `run` adjacent pixels of `channels`; with tensor cores, a warp computes
/// `run` rows of `channels`, a thread four adjacent pixels per accumulator.
struct ConvolutionTile {
  int width, height;   ///< per block
  int run;             ///< FMA: a multiple of 4; else a multiple of 32 / width rows
  int block_channels;  ///< computed by a block
  int channels;        ///< per thread, a multiple of 4; per warp, a multiple of 16
  int chunk;  ///< input channels in shared memory; for tensor cores a multiple of 8, half 16
  int parts;  ///< threads or warps that share a chunk's channels

  PLAN int owners(Products products) const {
    return by_tensor_cores(products) ? 32 * (height / run) * (block_channels / channels)
                                     : width / run * height * (block_channels / channels);
  }
  PLAN int threads(Products products) const { return owners(products) * parts; }
  /// Vectors of four sums per thread.
  PLAN int vectors(Products products) const {
    return by_tensor_cores(products) ? channels / 16 * (run * width / 32) * 4 : channels * run / 4;
  }
};

/// Layout of a convolution's shared memory, in floats.
struct ConvolutionPlan {
  Side y, x;
  Run run;
  int taps;
  int rows, columns, row;    ///< per input channel; a row is longer for few bank conflicts
  int weight_row;            ///< per tap, chosen for few bank conflicts
  int sums;                  ///< floats of all threads
  int plane = 0;             ///< floats of an input channel
  int input = 0, stage = 0;  ///< floats per chunk; with its weights

  PLAN ConvolutionPlan(const Side& y, const Side& x, Products products, const ConvolutionTile& t)
      : y(y),
        x(x),
        run(x, by_tensor_cores(products) ? 4 : t.run),
        taps(y.taps * x.taps),
        rows((t.height - 1) * y.step + y.reach()),
        columns(rounded_up(
            (t.width - (by_tensor_cores(products) ? 4 : t.run)) * x.step + run.first + run.window,
            4)),
        row(columns),
        weight_row(by_tensor_cores(products)
                       ? 132
                       : t.block_channels + (t.block_channels % 8 == 0 ? 4 : 0)),
        sums(t.threads(products) * t.vectors(products) * 4) {
    if (!by_tensor_cores(products)) row = apart_in_banks(row, t);
    plane = by_tensor_cores(products) ? banked(rows * row, 8, 24) : rows * row;
    input = t.chunk * plane;
    // Tensor cores: for each tap, 16 outputs and 8 inputs are adjacent.
    stage =
        input + taps * weight_row *
                    (by_tensor_cores(products) ? t.block_channels / 16 * (t.chunk / 8) : t.chunk);
  }
  /// Floats of shared memory for a block of so many chunks.
  PLAN int floats(int chunks) const { return most(chunks > 1 ? 2 * stage : stage, sums); }

 private:
  /// The shortest row from `row` on for which the fours that eight threads load at a time don't
  /// conflict in banks, if a few more floats can achieve it.
  PLAN int apart_in_banks(int row, const ConvolutionTile& t) const {
    for (int longer = row; longer < row + 32; longer += 4) {
      if (fours_apart(t.width / t.run, t.run * x.step, y.step * longer)) return longer;
    }
    return row;
  }
};

// Tiles to choose from; ties go to the first.
#define MILLRACE_FMA_TILES(TILE) \
  TILE(32, 8, 8, 16, 8, 8, 4)    \
  TILE(32, 4, 8, 16, 4, 4, 2)    \
  TILE(16, 4, 8, 16, 4, 16, 8)   \
  TILE(32, 3, 8, 32, 8, 32, 8)   \
  TILE(8, 4, 8, 12, 4, 16, 16)   \
  TILE(8, 4, 4, 12, 4, 16, 16)   \
  TILE(8, 4, 4, 8, 4, 16, 16)    \
  TILE(8, 4, 4, 4, 4, 16, 16)    \
  TILE(8, 8, 8, 4, 4, 16, 16)    \
  TILE(8, 4, 4, 8, 4, 4, 4)      \
  TILE(8, 8, 4, 4, 4, 4, 4)      \
  TILE(32, 8, 8, 4, 4, 8, 4)     \
  TILE(32, 4, 8, 4, 4, 16, 16)   \
  TILE(32, 3, 8, 4, 4, 32, 32)   \
  TILE(16, 8, 4, 8, 8, 1, 1)
#define MILLRACE_TENSOR_TILES(TILE) \
  TILE(32, 4, 1, 32, 32, 8, 1)      \
  TILE(32, 4, 1, 64, 32, 8, 1)      \
  TILE(32, 8, 2, 64, 32, 8, 1)      \
  TILE(32, 4, 1, 48, 48, 8, 1)      \
  TILE(32, 8, 2, 16, 16, 8, 1)      \
  TILE(32, 4, 1, 32, 32, 16, 1)     \
  TILE(32, 4, 1, 48, 48, 16, 1)     \
  TILE(16, 4, 2, 32, 32, 32, 4)     \
  TILE(8, 8, 4, 32, 32, 32, 4)      \
  TILE(8, 8, 4, 32, 32, 32, 2)

/// Weight gradients: a block sums over every k-th tile of pixels, for some channels and rows of
/// taps. With FMA, a thread has 1 input and 4 output channels; else a warp has 8 and `warp_out`.
struct WeightGradientTile {
  int width, height;  ///< of the output's gradient; tensor cores: at least 16
  int in, out;        ///< channels per block
  int warp_out;       ///< tensor cores: a multiple of 16
  int sharers;        ///< threads or warps that share a sum

  PLAN int owners(Products products) const {
    return by_tensor_cores(products) ? in / 8 * (out / warp_out) * 32 : in * out / 4;
  }
  PLAN int threads(Products products) const { return owners(products) * sharers; }
};

struct WeightGradientPlan {
  Side y, x;
  int pixels;  ///< adjacent pixels a thread takes at once
  Run run;
  int tap_rows;  ///< per block: few enough for a thread's registers
  int in_row, out_plane;
  int row_blocks = 0;  ///< blocks for all rows of taps
  int in_rows = 0, in_plane = 0;
  int stage = 0, sums = 0, floats = 0;  ///< sums: per thread
  int taps_at_once = 0;                 ///< whose sums are in shared memory at the end
  int sharer = 0;  ///< floats of each sharer there; odd, for few bank conflicts

  PLAN WeightGradientPlan(const Side& y, const Side& x, Products products,
                          const WeightGradientTile& t)
      : y(y),
        x(x),
        pixels(by_tensor_cores(products) ? 4 : 8),
        run(x, pixels),
        tap_rows(most(1, (products == Products::exact_tf32 && t.warp_out <= 16 ? 15
                          : products == Products::exact_tf32                   ? 9
                          : t.warp_out > 16                                    ? 20
                                                                               : 25) /
                             x.taps)),
        in_row(rounded_up((t.width - pixels) * x.step + run.first + run.window, 4)),
        out_plane(plane(t.height * t.width, products, t)) {
    if (tap_rows > y.taps) tap_rows = y.taps;
    row_blocks = divided_up(y.taps, tap_rows);
    in_rows = (t.height - 1) * y.step + (tap_rows - 1) * y.dilation + 1;
    in_plane = plane(in_rows * in_row, products, t);
    if (t.owners(products) < 8) lay_apart(t.owners(products));  // else one load has one row
    stage = t.in * in_plane + t.out * out_plane;
    const int taps = tap_rows * x.taps, of_tap = t.sharers * t.in * t.out;
    sums = taps * 4 * (by_tensor_cores(products) ? t.warp_out / 16 : 1);
    constexpr int kRoom = 24 << 10;  // floats, available on every device
    taps_at_once = most(1, most(2 * stage, kRoom) / of_tap);
    if (taps_at_once > taps) taps_at_once = taps;
    sharer = t.in * t.out * taps_at_once | 1;
    floats = most(most(2 * stage, t.sharers * sharer), t.threads(products));
  }

 private:
  /// Avoids bank conflicts with longer rows and other planes, for `owners` input channels.
  PLAN void lay_apart(int owners) {
    for (int row = in_row; row < in_row + 32; row += 4) {
      for (int rest = 4; rest <= 8; rest += 4) {
        if (!fours_apart(owners, rest, y.step * row)) continue;
        in_row = row;
        in_plane = banked(in_rows * row, rest, rest);
        return;
      }
    }
  }
  static PLAN int plane(int floats, Products products, const WeightGradientTile& t) {
    if (!by_tensor_cores(products)) return banked(floats, 4, 4);
    return t.width < 16 ? banked(floats, 8, 24) : banked(floats, 16, 16);
  }
};
#define MILLRACE_FMA_GRADIENT_TILES(TILE) \
  TILE(32, 4, 16, 16, 0, 2)               \
  TILE(16, 4, 16, 16, 0, 2)               \
  TILE(8, 8, 16, 16, 0, 1)                \
  TILE(8, 4, 8, 16, 0, 4)                 \
  TILE(8, 8, 8, 8, 0, 8)                  \
  TILE(8, 8, 8, 8, 0, 4)                  \
  TILE(8, 8, 4, 4, 0, 8)                  \
  TILE(16, 16, 4, 4, 0, 32)               \
  TILE(32, 16, 4, 4, 0, 32)               \
  TILE(32, 8, 4, 16, 0, 16)               \
  TILE(32, 8, 16, 4, 0, 16)
#define MILLRACE_TENSOR_GRADIENT_TILES(TILE) \
  TILE(32, 4, 16, 16, 16, 4)                 \
  TILE(32, 4, 16, 32, 16, 2)                 \
  TILE(32, 4, 16, 64, 16, 1)                 \
  TILE(32, 4, 16, 48, 16, 1)                 \
  TILE(32, 4, 32, 64, 32, 1)                 \
  TILE(16, 4, 32, 64, 32, 1)                 \
  TILE(8, 8, 32, 64, 32, 1)

}  // namespace millrace::gpu
