// How a GPU's kernels cut their work: read by the kernels themselves and by who launches them.
#pragma once

#ifdef __CUDACC_RTC__
#define PLAN __host__ __device__ constexpr
#else
#define PLAN constexpr
#endif

namespace millrace::gpu {

PLAN int divided_up(int a, int b) {
  return (a + b - 1) / b;
}
PLAN int rounded_up(int a, int to) {
  return divided_up(a, to) * to;
}

/// A block makes a tile of pixels of some channels, from `chunk` input channels at a time.
struct ConvolutionTile {
  int width, height;   ///< pixels of a block
  int pixels;          ///< of a thread, in a row; a multiple of 4
  int block_channels;  ///< made by a block
  int channels;        ///< of a thread; a multiple of 4
  int chunk;           ///< input channels in shared memory
  int parts;           ///< threads that share a chunk's channels

  PLAN int places() const { return width / pixels * height; }
  PLAN int groups() const { return block_channels / channels; }
  PLAN int threads() const { return places() * groups() * parts; }
};
#define MILLRACE_CONVOLUTION_TILES(TILE) \
  TILE(32, 16, 8, 16, 8, 8, 1)           \
  TILE(32, 8, 8, 16, 8, 8, 1)            \
  TILE(16, 8, 4, 16, 8, 8, 4)            \
  TILE(8, 8, 4, 8, 4, 8, 4)              \
  TILE(8, 4, 4, 4, 4, 8, 8)              \
  TILE(32, 8, 4, 4, 4, 8, 2)             \
  TILE(32, 8, 8, 16, 8, 4, 1)            \
  TILE(16, 8, 4, 8, 8, 1, 1)

/// The inputs that a thread reads for a row of taps.
struct TapWindow {
  int pad;
  int lead;         ///< columns before the tile's first: fours of them are aligned in the image
  int first, skip;  ///< they begin at first + skip
  int window;       ///< how many, with what is read to be aligned

  /// \param step between the inputs of neighbours. \param pixels of the thread.
  PLAN TapWindow(int kernel, int step, int pixels)
      : pad(kernel / 2),
        lead(step == 1 ? rounded_up(pad, 4) : pad),
        first((lead - pad) / 4 * 4),
        skip((lead - pad) % 4),
        window(rounded_up(skip + (pixels - 1) * step + kernel, 4)) {}
};

/// Where a convolution's data lies in shared memory, in floats.
struct ConvolutionPlan : TapWindow {
  int taps;
  int step, apart;       ///< between inputs of neighbours; between the input's pixels (else zeros)
  int rows, row, input;  ///< of an input channel; all of them
  int weight_row;
  int stage, floats;  ///< of a chunk; in all

  /// \param stride of the forward. \param gradient the data gradient.
  PLAN ConvolutionPlan(int kernel, int stride, bool gradient, const ConvolutionTile& t)
      : TapWindow(kernel, gradient ? 1 : stride, t.pixels),
        taps(kernel * kernel),
        step(gradient ? 1 : stride),
        apart(gradient ? stride : 1),
        rows((t.height - 1) * step + kernel),
        row(rounded_up((t.width - t.pixels) * step + first + window, 4)),
        input(t.chunk * rows * row),
        weight_row(t.block_channels + 4),  // so that fewer threads meet in a bank
        stage(input + t.chunk * taps * weight_row),
        floats(2 * stage) {
    const int sums = t.parts > 1 ? t.threads() * t.channels * t.pixels : 0;
    if (sums > floats) floats = sums;
  }
};

/// A block sums over every k-th tile of pixels, for some channels and rows of taps; a thread for
/// one input channel and four output channels.
struct WeightGradientTile {
  int width, height;  ///< pixels of the output's gradient
  int in, out;        ///< channels of a block
  int threads;

  static constexpr int pixels = 8;  ///< in a row, taken at once
  PLAN int cells() const { return in * out / 4; }
  PLAN int sharers() const { return threads / cells(); }  ///< of a sum
};
#define MILLRACE_WEIGHT_GRADIENT_TILES(TILE) \
  TILE(32, 8, 16, 16, 256)                   \
  TILE(16, 8, 16, 16, 256)                   \
  TILE(8, 8, 16, 16, 128)                    \
  TILE(32, 8, 4, 16, 128)                    \
  TILE(32, 8, 16, 4, 128)                    \
  TILE(8, 8, 4, 4, 32)

struct WeightGradientPlan : TapWindow {
  int tap_rows;    ///< of a block: few enough for a thread's registers
  int row_blocks;  ///< blocks for all rows of taps
  int in_rows, in_row, in_plane, out_plane;
  int stage, sums, floats;  ///< sums: of a thread

  PLAN WeightGradientPlan(int kernel, int stride, const WeightGradientTile& t)
      : TapWindow(kernel, stride, t.pixels),
        tap_rows(kernel <= 5    ? kernel
                 : kernel <= 25 ? 25 / kernel
                                : 1),
        row_blocks(divided_up(kernel, tap_rows)),
        in_rows((t.height - 1) * stride + tap_rows),
        in_row(rounded_up((t.width - t.pixels) * stride + first + window, 4)),
        // Channels' planes begin in different banks.
        in_plane(rounded_up(in_rows * in_row, 32) + 4),
        out_plane(rounded_up(t.height * t.width, 32) + 4),
        stage(t.in * in_plane + t.out * out_plane),
        sums(tap_rows * kernel * 4),
        floats(2 * stage) {
    const int reduced = (t.threads - t.cells()) * sums;
    if (reduced > floats) floats = reduced;
  }
};

}  // namespace millrace::gpu
