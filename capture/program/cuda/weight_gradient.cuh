// Weight gradients of several convolutions in one launch. A block takes some input and output
// channels, rows of taps and every k-th tile of pixels; add_up_parts() adds the parts in order.
#pragma once

#include "capture/program/cuda/block.cuh"
#include "capture/program/cuda/products.cuh"

namespace millrace::gpu {

/// Of a sum: channels within the block's, and a tap of its rows.
struct TapPlace {
  int out, in, tap;
};

/// For a block's tile, [out][in][taps]; `Cut` says how the work is split.
template <class Cut, Products kProducts>
class TapSums {
  static constexpr WeightGradientPlan kPlan = Cut::plan;
  static constexpr WeightGradientTile kTile = Cut::tile;
  static constexpr int kM = kTile.warp_out / 16, kTaps = kPlan.tap_rows * kPlan.x.taps;
  static constexpr int kAcross = kTile.width >= 16 ? 4 : kTile.width / 4;  ///< of 4 fours of pixels
  static constexpr int kUnitsOfRow = kTile.width / (4 * kAcross);
  static constexpr int kUnits = kUnitsOfRow * (kTile.height * kAcross / 4);
  static constexpr bool kPromotes = kProducts == Products::exact_tf32;

 public:
  DEVICE TapSums(int owner, int sharer) : owner(owner), sharer(sharer) {}

  DEVICE static TapPlace place(int owner, int i) {
    const int warp = owner / 32, lane = owner % 32, warps = kTile.in / 8;
    return {warp / warps * kTile.warp_out + i / (4 * kTaps) * 16 + lane / 4 + i % 4 / 2 * 8,
            warp % warps * 8 + lane % 4 * 2 + i % 2, i / 4 % kTaps};
  }
  DEVICE float& at(int i) {
    if constexpr (kPromotes) return (&totals[0][0][0])[i];
    return (&sums[0][0][0])[i];
  }

  DEVICE void add(const float* x, const float* dy) {
    const int lane = owner % 32, warp = owner / 32, warps = kTile.in / 8;
    x += (warp % warps * 8 + lane / 4) * kPlan.in_plane;
    dy += (warp / warps * kTile.warp_out + lane / 4) * kPlan.out_plane;
#pragma unroll 1
    for (int unit = sharer; unit < kUnits; unit += kTile.sharers) {
      const int column = (unit % kUnitsOfRow * kAcross + lane % 4 % kAcross) * 4;
      const int row = unit / kUnitsOfRow * (4 / kAcross) + lane % 4 / kAcross;
      add_unit(x + row * kPlan.y.step * kPlan.in_row + column * kPlan.x.step + kPlan.run.first,
               dy + row * kTile.width + column);
    }
  }

 private:
  static constexpr int kMmas = kProducts == Products::half ? 1 : 2;  ///< per 16 pixels

  /// Sixteen pixels, four of them the lane's.
  DEVICE void add_unit(const float* x, const float* dy) {
    Lane<kProducts, 4> a[kM][kMmas];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      float low[4], high[4];
      load<4>(low, dy + m * 16 * kPlan.out_plane);
      load<4>(high, dy + (m * 16 + 8) * kPlan.out_plane);
      if constexpr (kMmas == 1) {
        a[m][0].set(0, low[0], low[1]), a[m][0].set(1, high[0], high[1]);
        a[m][0].set(2, low[2], low[3]), a[m][0].set(3, high[2], high[3]);
      } else {
#pragma unroll
        for (int s = 0; s < kMmas; ++s) {
          a[m][s].set(0, low[2 * s]), a[m][s].set(1, high[2 * s]);
          a[m][s].set(2, low[2 * s + 1]), a[m][s].set(3, high[2 * s + 1]);
        }
      }
    }
#pragma unroll
    for (int ky = 0; ky < kPlan.tap_rows; ++ky) {
      float window[kPlan.run.window];
      load<kPlan.run.window>(window, x + ky * kPlan.y.dilation * kPlan.in_row);
#pragma unroll
      for (int kx = 0; kx < kPlan.x.taps; ++kx) {
        const int tap = ky * kPlan.x.taps + kx;
        const float* const from = window + kPlan.run.skip + kx * kPlan.x.dilation;
        if constexpr (kMmas == 1) {
          const unsigned b0 = two_halves(from[0], from[kPlan.x.step]),
                         b1 = two_halves(from[2 * kPlan.x.step], from[3 * kPlan.x.step]);
#pragma unroll
          for (int m = 0; m < kM; ++m) add_product(sums[m][tap], a[m][0], b0, b1, 0, 0);
        } else {
          Lane<kProducts, 4, true> b;
#pragma unroll
          for (int p = 0; p < 4; ++p) b.set(p, from[p * kPlan.x.step]);
#pragma unroll
          for (int s = 0; s < kMmas; ++s) {
#pragma unroll
            for (int m = 0; m < kM; ++m) {
              constexpr int kLow = kPromotes ? 1 : 0;
              add_product(sums[m][tap], a[m][s], b.high[2 * s], b.high[2 * s + 1],
                          b.low[2 * s * kLow], b.low[(2 * s + 1) * kLow]);
            }
          }
        }
      }
    }
    if constexpr (kPromotes) promote<kM * kTaps * 4>(&sums[0][0][0], &totals[0][0][0]);
  }

  const int owner, sharer;
  float sums[kM][kTaps][4] = {};  ///< [16 outputs][tap][of the lane]
  float totals[kPromotes ? kM : 1][kPromotes ? kTaps : 1][4] = {};
};

/// A thread has one input channel, four output channels and all taps.
template <class Cut>
class TapSums<Cut, Products::fma> {
  static constexpr WeightGradientPlan kPlan = Cut::plan;
  static constexpr WeightGradientTile kTile = Cut::tile;
  static constexpr int kPixels = kPlan.pixels;

 public:
  DEVICE TapSums(int owner, int sharer) : owner(owner), sharer(sharer) {}

  DEVICE static TapPlace place(int owner, int i) {
    return {owner / kTile.in * 4 + i % 4, owner % kTile.in, i / 4};
  }
  DEVICE float& at(int i) { return sums[i]; }

  DEVICE void add(const float* x, const float* dy) {
    x += owner % kTile.in * kPlan.in_plane + kPlan.run.first;
    dy += owner / kTile.in * 4 * kPlan.out_plane;
    constexpr int kRuns = kTile.width * kTile.height / kPixels;
#pragma unroll 1
    for (int i = sharer; i < kRuns; i += kTile.sharers) {  // neighbours differ in their rows
      const int row = i % kTile.height, column = i / kTile.height * kPixels;
      float gradient[4][kPixels];
#pragma unroll
      for (int o = 0; o < 4; ++o)
        load<kPixels>(gradient[o], dy + o * kPlan.out_plane + row * kTile.width + column);
#pragma unroll
      for (int ky = 0; ky < kPlan.tap_rows; ++ky) {
        float window[kPlan.run.window];
        load<kPlan.run.window>(window,
                               x + (row * kPlan.y.step + ky * kPlan.y.dilation) * kPlan.in_row +
                                   column * kPlan.x.step);
#pragma unroll
        for (int p = 0; p < kPixels; ++p) {
#pragma unroll
          for (int kx = 0; kx < kPlan.x.taps; ++kx) {
#pragma unroll
            for (int o = 0; o < 4; ++o) {
              float& sum = sums[(ky * kPlan.x.taps + kx) * 4 + o];
              sum = fmaf(gradient[o][p],
                         window[kPlan.run.skip + p * kPlan.x.step + kx * kPlan.x.dilation], sum);
            }
          }
        }
      }
    }
  }

 private:
  const int owner, sharer;
  float sums[kPlan.sums] = {};
};

template <class kWindow, Products kProducts, int... kNumbers>
struct WeightGradientCut {
  static constexpr WeightGradientTile tile{kNumbers...};
  static constexpr WeightGradientPlan plan{kWindow::rows(false), kWindow::columns(false), kProducts,
                                           tile};
};

template <class kWindow, Products kProducts, int... kNumbers>
class WeightGradientSum {
  using Cut = WeightGradientCut<kWindow, kProducts, kNumbers...>;
  using Sums = TapSums<Cut, kProducts>;
  static constexpr WeightGradientTile kTile = Cut::tile;
  static constexpr WeightGradientPlan kPlan = Cut::plan;
  static constexpr int kThreads = kTile.threads(kProducts), kOwners = kTile.owners(kProducts);

 public:
  /// \param block within `gradient`'s.
  DEVICE WeightGradientSum(const WeightGradient& gradient, int block) : g(gradient) {
    const int ins = divided_up(g.from.channels, kTile.in),
              outs = divided_up(g.to.channels, kTile.out);
    slice = block % g.slices;
    block /= g.slices;
    first_tap_row = block % kPlan.row_blocks * kPlan.tap_rows;
    block /= kPlan.row_blocks;
    first_in = block % ins * kTile.in;
    block /= ins;
    first_out = block % outs * kTile.out;
    group = block / outs;
  }

  DEVICE void run() {
    Sums sums(thread() % kOwners, thread() / kOwners);
    float bias = 0;
    const int tiles = divided_up(g.to.width, kTile.width) * divided_up(g.to.height, kTile.height);
    wait_for_last();
    int stage = 0;
#pragma unroll 1
    for (int tile = slice - g.slices; tile < tiles; tile += g.slices, stage = 1 - stage) {
      begin(tile + g.slices, tiles, stage);
      if (tile < 0) continue;
      wait<1>();
      meet();
      const float* const x = shared_memory() + (1 - stage) * kPlan.stage;
      const float* const dy = x + kTile.in * kPlan.in_plane;
      sums.add(x, dy);
      if (has_bias()) bias += some_of(dy);
      meet();
    }
    wait<0>();
    write_all(sums);
    if (has_bias()) reduce_bias(bias);
  }

 private:
  static constexpr int kBiasSharers = kThreads / kTile.out;
  DEVICE bool has_bias() const {
    return g.bias_parts && first_in == 0 && first_tap_row == 0;
  }

  DEVICE void begin(int tile, int tiles, int stage) const {
    if (tile < tiles) {
      const int across = divided_up(g.to.width, kTile.width);
      const int x = tile % across * kTile.width, y = tile / across * kTile.height;
      float* const to = shared_memory() + stage * kPlan.stage;
      fetch_tile<kThreads, kTile.in, kPlan.in_rows, kPlan.in_row, kPlan.in_row, kPlan.in_plane>(
          to, {g.x + group * g.from.floats(), g.from}, first_in,
          y * kPlan.y.step - kPlan.y.pad + first_tap_row * kPlan.y.dilation,
          x * kPlan.x.step - kPlan.run.lead, kPlan.x.step == 1 && g.fours);
      fetch_tile<kThreads, kTile.out, kTile.height, kTile.width, kTile.width, kPlan.out_plane>(
          to + kTile.in * kPlan.in_plane, {g.dy + group * g.to.floats(), g.to}, first_out, y, x,
          g.dy_fours);
    }
    commit();
  }

  DEVICE static float some_of(const float* dy) {
    const float* const plane = dy + thread() / kBiasSharers * kPlan.out_plane;
    float sum = 0;
    if (thread() >= kBiasSharers * kTile.out) return sum;
    for (int p = thread() % kBiasSharers; p < kTile.width * kTile.height; p += kBiasSharers)
      sum += plane[p];
    return sum;
  }

  /// Coalesced through shared memory, some taps at a time; a thread adds the sharers' sums.
  DEVICE void write_all(Sums& sums) const {
    constexpr int kOnce = kPlan.taps_at_once, kTaps = kPlan.tap_rows * kPlan.x.taps;
    constexpr int kAll = kTile.out * kTile.in * kOnce;
    const int taps = kPlan.y.taps * kPlan.x.taps;
    float* const slice_parts =
        g.parts + (long long)(slice)*g.groups * g.to.channels * g.from.channels * taps;
    float* const own = shared_memory() + thread() / kOwners * kPlan.sharer;
#pragma unroll
    for (int first = 0; first < kTaps; first += kOnce) {
      meet();
#pragma unroll
      for (int i = 0; i < kPlan.sums; ++i) {
        const TapPlace p = Sums::place(thread() % kOwners, i);
        if (p.tap >= first && p.tap < first + kOnce)
          own[(p.out * kTile.in + p.in) * kOnce + p.tap - first] = sums.at(i);
      }
      meet();
#pragma unroll 1
      for (int i = thread(); i < kAll; i += kThreads) {
        float sum = 0;
#pragma unroll
        for (int sharer = 0; sharer < kTile.sharers; ++sharer)
          sum += shared_memory()[sharer * kPlan.sharer + i];
        const int o = first_out + i / (kTile.in * kOnce), c = first_in + i / kOnce % kTile.in;
        const int tap = first + i % kOnce, of_all = first_tap_row * kPlan.x.taps + tap;
        if (o < g.to.channels && c < g.from.channels && tap < kTaps && of_all < taps)
          slice_parts[(((long long)(group)*g.to.channels + o) * g.from.channels + c) * taps +
                      of_all] = sum;
      }
    }
  }

  DEVICE void reduce_bias(float bias) const {
    float* const all = shared_memory();
    meet();
    all[thread()] = bias;
    meet();
    const int o = first_out + thread();
    if (thread() >= kTile.out || o >= g.to.channels) return;
    float sum = 0;
#pragma unroll 8
    for (int i = 0; i < kBiasSharers; ++i) sum += all[thread() * kBiasSharers + i];
    g.bias_parts[slice * g.groups * g.to.channels + group * g.to.channels + o] = sum;
  }

  const WeightGradient& g;
  int slice, first_tap_row, first_in, first_out, group;
};

/// Grid: the blocks of all gradients.
template <class kWindow, Products kProducts, int... kNumbers>
BOUNDED_KERNEL(WeightGradientTile{kNumbers...}.threads(kProducts), true)
weight_gradients(BY_VALUE WeightGradientArguments arguments) {
  let_next_come();
  int own = block(), i = 0;
  while (own >= arguments.all[i].blocks) own -= arguments.all[i++].blocks;
  WeightGradientSum<kWindow, kProducts, kNumbers...>(arguments.all[i], own).run();
}

/// For few channels or many small groups: a block per pair of channels, a thread per k-th pixel.
template <class kWindow>
KERNEL(kThreads)
plain_weight_gradient(BY_VALUE WeightGradientArguments arguments) {
  start();
  const WeightGradient& g = arguments.all[0];
  constexpr Side kY = kWindow::rows(false), kX = kWindow::columns(false);
  constexpr int kTaps = kY.taps * kX.taps;
  const int out = block() / g.from.channels, pixels = g.to.pixels();
  const int in = out / g.to.channels * g.from.channels + block() % g.from.channels;
  const float* const x = g.x + (long long)(in)*g.from.pixels();
  const float* const dy = g.dy + (long long)(out)*pixels;
#pragma unroll 1
  for (int tap = 0; tap <= kTaps; ++tap) {  // the last one is the bias
    if (tap == kTaps && (!g.bias_parts || block() % g.from.channels > 0)) return;
    float sum = 0;
    for (int p = thread(); p < pixels; p += kThreads) {
      const int y = p / g.to.width * kY.step - kY.pad + tap / kX.taps * kY.dilation;
      const int from = p % g.to.width * kX.step - kX.pad + tap % kX.taps * kX.dilation;
      if (tap == kTaps) {
        sum += dy[p];
      } else if (y >= 0 && y < g.from.height && from >= 0 && from < g.from.width) {
        sum = fmaf(dy[p], x[y * g.from.width + from], sum);
      }
    }
    sum = float(sum_of_block<kThreads>(sum));
    if (thread() == 0) *(tap < kTaps ? g.parts + block() * kTaps + tap : g.bias_parts + out) = sum;
  }
}

}  // namespace millrace::gpu
