// The weights' gradients of several convolutions in one launch: a thread keeps the sums of one
// input channel, four output channels and all taps of some rows in registers. A block takes some
// channels of each kind and every k-th tile of pixels, and leaves a part of the sums;
// add_up_parts() adds the parts in their order.
#pragma once

#include "capture/program/cuda/device.cuh"

namespace millrace::gpu {

template <int kKernel, int kStride, int... kNumbers>
class WeightGradientSum {
  static constexpr WeightGradientTile kTile{kNumbers...};
  static constexpr WeightGradientPlan kPlan{kKernel, kStride, kTile};
  static constexpr int kThreads = kTile.threads, kPixels = kTile.pixels;

 public:
  /// \param block of `gradient`'s.
  DEVICE WeightGradientSum(const WeightGradient& gradient, int block) : g(gradient) {
    const int ins = divided_up(g.in_channels, kTile.in);
    slice = block % g.slices;
    block /= g.slices;
    first_tap_row = block % kPlan.row_blocks * kPlan.tap_rows;
    block /= kPlan.row_blocks;
    first_in = block % ins * kTile.in;
    first_out = block / ins * kTile.out;
    const int cell = thread() % kTile.cells();
    in = cell % kTile.in;
    out = cell / kTile.in * 4;
    sharer = thread() / kTile.cells();
  }

  DEVICE void run() {
    const int tiles = divided_up(g.out_width, kTile.width) * divided_up(g.out_height, kTile.height);
    int stage = 0;
#pragma unroll 1
    for (int tile = slice - g.slices; tile < tiles; tile += g.slices, stage = 1 - stage) {
      begin(tile + g.slices, tiles, stage);
      if (tile < 0) continue;
      wait<1>();
      meet();
      const float* const memory = shared_memory() + (1 - stage) * kPlan.stage;
      add_products(memory);
      if (has_bias()) add_bias(memory + kTile.in * kPlan.in_plane);
      meet();
    }
    wait<0>();
    reduce();
    if (has_bias()) reduce_bias();
  }

 private:
  static constexpr int kBiasSharers = kThreads / kTile.out;
  DEVICE bool has_bias() const {
    return g.bias_parts && first_in == 0 && first_tap_row == 0;
  }

  DEVICE void begin(int tile, int tiles, int stage) const {
    if (tile < tiles) {
      const int across = divided_up(g.out_width, kTile.width);
      const int x = tile % across * kTile.width, y = tile / across * kTile.height;
      float* const to = shared_memory() + stage * kPlan.stage;
      fetch<kTile.in, kPlan.in_rows, kPlan.in_row, kPlan.in_plane, kStride == 1>(
          to, g.x, first_in, g.in_channels, y * kStride - kPlan.pad + first_tap_row, g.in_height,
          x * kStride - kPlan.lead, g.in_width);
      fetch<kTile.out, kTile.height, kTile.width, kPlan.out_plane, true>(
          to + kTile.in * kPlan.in_plane, g.dy, first_out, g.out_channels, y, g.out_height, x,
          g.out_width);
    }
    commit();
  }

  /// A tile of some channels' planes, zeros where there is nothing.
  template <int kChannels, int kRows, int kRow, int kPlane, bool kAligned>
  DEVICE void fetch(float* to, const float* from, int first, int channels, int first_y, int height,
                    int first_x, int width) const {
    const int apart = kAligned && width % 4 == 0 ? 4 : 1, row = kRow / apart;
#pragma unroll 2
    for (int i = thread(); i < kChannels * kRows * row; i += kThreads) {
      const int c = first + i / (kRows * row), y = first_y + i / row % kRows;
      const int x = first_x + i % row * apart;
      const bool there = c < channels && y >= 0 && y < height && x >= 0 && x < width;
      float* const place =
          to + i / (kRows * row) * kPlane + i / row % kRows * kRow + i % row * apart;
      const float* const source =
          there ? from + (long long)(c)*height * width + y * width + x : from;
      apart == 4 ? copy_async_4(place, source, there) : copy_async(place, source, there);
    }
  }

  DEVICE void add_products(const float* memory) {
    const float* const x = memory + in * kPlan.in_plane;
    const float* const dy = memory + kTile.in * kPlan.in_plane + out * kPlan.out_plane;
    constexpr int kOwn = kTile.width * kTile.height / kPixels / kTile.sharers();
#pragma unroll 1
    for (int i = sharer * kOwn; i < (sharer + 1) * kOwn; ++i) {
      const int row = i / (kTile.width / kPixels);
      const int column = i % (kTile.width / kPixels) * kPixels;
      float gradient[4][kPixels];
#pragma unroll
      for (int o = 0; o < 4; ++o)
        load<kPixels>(gradient[o], dy + o * kPlan.out_plane + row * kTile.width + column);
#pragma unroll
      for (int ky = 0; ky < kPlan.tap_rows; ++ky) {
        float window[kPlan.window];
        load<kPlan.window>(
            window, x + (row * kStride + ky) * kPlan.in_row + column * kStride + kPlan.first);
#pragma unroll
        for (int p = 0; p < kPixels; ++p) {
#pragma unroll
          for (int kx = 0; kx < kKernel; ++kx) {
#pragma unroll
            for (int o = 0; o < 4; ++o) {
              float& sum = sums[(ky * kKernel + kx) * 4 + o];
              sum = fmaf(gradient[o][p], window[kPlan.skip + p * kStride + kx], sum);
            }
          }
        }
      }
    }
  }

  DEVICE void add_bias(const float* dy) {
    const float* const plane = dy + thread() / kBiasSharers * kPlan.out_plane;
    for (int p = thread() % kBiasSharers; p < kTile.width * kTile.height; p += kBiasSharers)
      bias += plane[p];
  }

  /// The first sharer of each cell takes the others' sums, one after another, and writes them.
  DEVICE void reduce() {
    constexpr int kOthers = kThreads - kTile.cells();
    float* const others = shared_memory() + thread() % kTile.cells();
    if (sharer > 0) {
#pragma unroll
      for (int i = 0; i < kPlan.sums; ++i)
        others[i * kOthers + (sharer - 1) * kTile.cells()] = sums[i];
    }
    meet();
    if (sharer > 0) return;
    for (int other = 0; other < kTile.sharers() - 1; ++other) {
#pragma unroll
      for (int i = 0; i < kPlan.sums; ++i) sums[i] += others[i * kOthers + other * kTile.cells()];
    }
    const int channel_in = first_in + in;
    if (channel_in >= g.in_channels) return;
    constexpr int kTaps = kKernel * kKernel;
    float* const slice_parts = g.parts + (long long)(slice)*g.out_channels * g.in_channels * kTaps;
#pragma unroll
    for (int i = 0; i < kPlan.sums; ++i) {
      const int o = first_out + out + i % 4, tap = first_tap_row * kKernel + i / 4;
      if (o < g.out_channels && tap < kTaps)
        slice_parts[((long long)(o)*g.in_channels + channel_in) * kTaps + tap] = sums[i];
    }
  }

  DEVICE void reduce_bias() {
    float* const all = shared_memory();
    meet();
    all[thread()] = bias;
    meet();
    const int o = first_out + thread();
    if (thread() >= kTile.out || o >= g.out_channels) return;
    float sum = 0;
    for (int i = 0; i < kBiasSharers; ++i) sum += all[thread() * kBiasSharers + i];
    g.bias_parts[slice * g.out_channels + o] = sum;
  }

  const WeightGradient& g;
  int slice, first_tap_row, first_in, first_out, in, out, sharer;
  float sums[kPlan.sums] = {};
  float bias = 0;
};

/// As many blocks as all of them have.
template <int kKernel, int kStride, int... kNumbers>
KERNEL(WeightGradientTile{kNumbers...}.threads)
weight_gradients(BY_VALUE WeightGradientArguments arguments) {
  int own = block(), i = 0;
  while (own >= arguments.all[i].blocks) own -= arguments.all[i++].blocks;
  WeightGradientSum<kKernel, kStride, kNumbers...>(arguments.all[i], own).run();
}

/// A thread a sum.
KERNEL(kThreads) add_up_parts(BY_VALUE PartsArguments arguments) {
  int own = block(), k = 0;
  while (own >= arguments.all[k].blocks) own -= arguments.all[k++].blocks;
  const Parts& p = arguments.all[k];
  const int i = own * kThreads + thread();
  if (i >= p.count) return;
  float sum = 0;
  for (int slice = 0; slice < p.slices; ++slice) sum += p.parts[(long long)(slice)*p.count + i];
  p.sum[i] = p.accumulate ? p.sum[i] + sum : sum;
}

}  // namespace millrace::gpu
