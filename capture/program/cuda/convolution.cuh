// A convolution and its data gradient: a block makes a tile of pixels of some channels from tiles
// of the input and the weights in shared memory, of which the next are on their way while one is
// used. Products are added in one order: a part's input channels, rows of taps, taps; then the
// parts; then the blocks of a cluster, which share the input channels.
#pragma once

#include "capture/program/cuda/products.cuh"

namespace millrace::gpu {

template <class kWindow, bool kGradient, Products kProducts, int... kNumbers>
struct ConvolutionCut {
  static constexpr ConvolutionTile tile{kNumbers...};
  static constexpr ConvolutionPlan plan{kWindow::rows(kGradient), kWindow::columns(kGradient),
                                        kProducts, tile};
};

template <class kWindow, bool kGradient, Products kProducts, int... kNumbers>
class Convolution {
  using Cut = ConvolutionCut<kWindow, kGradient, kProducts, kNumbers...>;
  using Sums = TileSums<Cut, kProducts>;
  static constexpr ConvolutionTile kTile = Cut::tile;
  static constexpr ConvolutionPlan kPlan = Cut::plan;
  static constexpr int kTaps = kPlan.taps, kThreads = kTile.threads(kProducts);
  static constexpr int kOwners = kTile.owners(kProducts), kVectors = kTile.vectors(kProducts);

 public:
  DEVICE explicit Convolution(const ConvolutionArguments& arguments) : a(arguments) {
    const int across = divided_up(a.out_width, kTile.width);
    const int tiles = across * divided_up(a.out_height, kTile.height);
    const int channel_blocks = divided_up(a.out_channels, kTile.block_channels);
    int rest = block() / cluster_size();
    first_x = rest % tiles % across * kTile.width;
    first_y = rest % tiles / across * kTile.height;
    rest /= tiles;
    first_channel = rest % channel_blocks * kTile.block_channels;
    group = rest / channel_blocks;
  }

  DEVICE void run() {
    const int chunks = divided_up(a.in_channels, kTile.chunk);
    const int of_block = divided_up(chunks, cluster_size());
    const int first = of_block * cluster_rank();
    const int end = first + of_block < chunks ? first + of_block : chunks;
    Sums sums(thread() % kOwners, thread() / kOwners);
#pragma unroll 1
    for (int chunk = first - 2; chunk < end; ++chunk) {  // in one place: it is inlined
      if (chunk >= first) {
        wait<1>();
        meet();
        const float* const stage = shared_memory() + chunk % 2 * kPlan.stage;
        sums.add(stage, stage + kPlan.input);
        meet();
      }
      if (chunk + 2 < end) begin(chunk + 2);
      commit();
    }
    if (kTile.parts > 1 || cluster_size() > 1) {
      add_parts(sums);
    } else {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) write(Sums::place(thread(), v), sums.four(v));
    }
  }

 private:
  /// Begins to fetch a chunk of input channels and their weights.
  DEVICE void begin(int chunk) {
    float* const stage = shared_memory() + chunk % 2 * kPlan.stage;
    fetch_weights(stage + kPlan.input, chunk * kTile.chunk);
    // An image whose rows are fours is read so.
    if (kPlan.x.step == 1 && kPlan.x.apart == 1 && kPlan.y.apart == 1 && a.in_width % 4 == 0) {
      fetch_fours(stage, chunk * kTile.chunk);
    } else {
      fetch_input(stage, chunk * kTile.chunk);
    }
  }

  DEVICE void fetch_fours(float* to, int channel) const {
    constexpr int kFours = kPlan.row / 4, kAll = kPlan.rows * kFours;
#pragma unroll 1
    for (int i = thread(); i < kTile.chunk * kAll; i += kThreads) {
      const int c = channel + i / kAll;
      const int y = first_y * kPlan.y.step - kPlan.y.pad + i % kAll / kFours;
      const int x = first_x - kPlan.run.lead + i % kFours * 4;
      const bool there = c < a.in_channels && y >= 0 && y < a.in_height && x >= 0 && x < a.in_width;
      copy_async_4(to + i / kAll * kPlan.plane + i % kAll * 4, there ? at(c, y, x) : a.in, there);
    }
  }
  DEVICE void fetch_input(float* to, int channel) const {
    constexpr int kAll = kPlan.rows * kPlan.row;
#pragma unroll 1
    for (int i = thread(); i < kTile.chunk * kAll; i += kThreads) {
      const int c = channel + i / kAll;
      const int y = first_y * kPlan.y.step - kPlan.y.pad + i % kAll / kPlan.row;
      const int x = first_x * kPlan.x.step - kPlan.run.lead + i % kPlan.row;
      const bool there = c < a.in_channels && y >= 0 && y % kPlan.y.apart == 0 &&
                         y / kPlan.y.apart < a.in_height && x >= 0 && x % kPlan.x.apart == 0 &&
                         x / kPlan.x.apart < a.in_width;
      copy_async(to + i / kAll * kPlan.plane + i % kAll,
                 there ? at(c, y / kPlan.y.apart, x / kPlan.x.apart) : a.in, there);
    }
  }
  DEVICE const float* at(int c, int y, int x) const {
    return a.in + ((long long)(group)*a.in_channels + c) * a.in_height * a.in_width +
           y * a.in_width + x;
  }

  DEVICE void fetch_weights(float* to, int channel) const {
    constexpr int kAll = kTile.chunk * kTaps * kTile.block_channels;
#pragma unroll 1
    for (int i = thread(); i < kAll; i += kThreads) {
      // In the order of their addresses.
      constexpr int kRun = (kGradient ? kTile.block_channels : kTile.chunk) * kTaps;
      const int outer = i / kRun, inner = i % kRun / kTaps, tap = i % kTaps;
      const int in = kGradient ? outer : inner, out = kGradient ? inner : outer;
      const int c = channel + in, o = first_channel + out;
      const bool there = c < a.in_channels && o < a.out_channels;
      const long long row = kGradient ? ((long long)(group)*a.in_channels + c) * a.out_channels + o
                                      : ((long long)(group)*a.out_channels + o) * a.in_channels + c;
      copy_async(to + Sums::weight_place(in, kGradient ? kTaps - 1 - tap : tap, out),
                 there ? a.weights + row * kTaps + tap : a.weights, there);
    }
  }

  /// Each thread of the cluster adds up some of the sums.
  DEVICE void add_parts(Sums& sums) {
    float4* const mine = reinterpret_cast<float4*>(shared_memory());
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      mine[(thread() / kOwners * kVectors + v) * kOwners + thread() % kOwners] = sums.four(v);
    meet_cluster();
    constexpr int kAll = kVectors * kOwners;
    const int share = divided_up(kAll, cluster_size()), first = share * cluster_rank();
    const int end = first + share < kAll ? first + share : kAll;
#pragma unroll 1
    for (int i = first + thread(); i < end; i += kThreads) {
      float4 sum = make_float4(0, 0, 0, 0);
      for (int rank = 0; rank < cluster_size(); ++rank) {
#pragma unroll
        for (int part = 0; part < kTile.parts; ++part) {
          const float4 more = of_cluster(mine + part * kAll + i, rank);
          sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
        }
      }
      write(Sums::place(i % kOwners, i / kOwners), sum);
    }
    meet_cluster();  // others may still read here
  }

  /// Four neighbours.
  DEVICE void write(const TilePlace& at, float4 sum) const {
    const int o = first_channel + at.channel, y = first_y + at.y, x = first_x + at.x;
    if (o >= a.out_channels || y >= a.out_height) return;
    const int channel = group * a.out_channels + o;
    const long long place = (long long)(channel)*a.out_height * a.out_width + y * a.out_width + x;
    const float bias = a.bias ? a.bias[channel] : 0;
    float made[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) made[i] = activated(made[i] + bias, a.activation);
    if (a.out_width % 4 == 0) {
      if (x >= a.out_width) return;
      float mask[4] = {1, 1, 1, 1};
      if (a.mask) load<4>(mask, a.mask + place);
      *reinterpret_cast<float4*>(a.out + place) =
          make_float4(mask[0] <= 0 ? 0 : made[0], mask[1] <= 0 ? 0 : made[1],
                      mask[2] <= 0 ? 0 : made[2], mask[3] <= 0 ? 0 : made[3]);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (x + i < a.out_width) a.out[place + i] = a.mask && a.mask[place + i] <= 0 ? 0 : made[i];
    }
  }

  const ConvolutionArguments& a;
  int group, first_channel, first_x, first_y;
};

/// Blocks: those of a cluster, tiles, blocks of channels, groups.
template <class kWindow, bool kGradient, Products kProducts, int... kNumbers>
BOUNDED_KERNEL(ConvolutionTile{kNumbers...}.threads(kProducts), by_tensor_cores(kProducts))
convolution(BY_VALUE ConvolutionArguments arguments) {
  start();
  Convolution<kWindow, kGradient, kProducts, kNumbers...>(arguments).run();
}

/// A thread a number, its sum over few channels or many small groups: depthwise convolutions.
template <class kWindow, bool kGradient>
KERNEL(kThreads)
plain_convolution(BY_VALUE ConvolutionArguments a) {
  start();
  constexpr Side kY = kWindow::rows(kGradient), kX = kWindow::columns(kGradient);
  constexpr int kTaps = kY.taps * kX.taps;
  const int i = block() * kThreads + thread(), plane = a.out_height * a.out_width;
  if (i >= a.groups * a.out_channels * plane) return;
  const int channel = i / plane, group = channel / a.out_channels, y = i % plane / a.out_width,
            x = i % a.out_width;
  float sum = 0;
  for (int c = 0; c < a.in_channels; ++c) {
    const int in = group * a.in_channels + c;
    const float* const image = a.in + (long long)(in)*a.in_height * a.in_width;
    const float* const weights =
        a.weights + (kGradient ? (long long)(in)*a.out_channels + channel % a.out_channels
                               : (long long)(channel)*a.in_channels + c) *
                        kTaps;
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const int from_y = y * kY.step - kY.pad + tap / kX.taps * kY.dilation;
      const int from_x = x * kX.step - kX.pad + tap % kX.taps * kX.dilation;
      if (from_y >= 0 && from_y % kY.apart == 0 && from_y / kY.apart < a.in_height && from_x >= 0 &&
          from_x % kX.apart == 0 && from_x / kX.apart < a.in_width)
        sum = fmaf(weights[kGradient ? kTaps - 1 - tap : tap],
                   image[from_y / kY.apart * a.in_width + from_x / kX.apart], sum);
    }
  }
  sum = activated(a.bias ? sum + a.bias[channel] : sum, a.activation);
  a.out[i] = a.mask && a.mask[i] <= 0 ? 0 : sum;
}

}  // namespace millrace::gpu
