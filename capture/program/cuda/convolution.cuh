// A convolution and its data gradient: a block computes a tile of pixels of some channels from
// tiles of input and weights in shared memory, and prefetches the next tiles meanwhile. Products
// are summed in a fixed order: the input channels of a part, rows of taps, taps; then the parts;
// then the blocks of a cluster, which split the input channels.
#pragma once

#include "capture/program/cuda/block.cuh"
#include "capture/program/cuda/products.cuh"

namespace millrace::gpu {

template <class kWindow, bool kGradient, Products kProducts, int... kNumbers>
struct ConvolutionCut {
  static constexpr ConvolutionTile tile{kNumbers...};
  static constexpr ConvolutionPlan plan{kWindow::rows(kGradient), kWindow::columns(kGradient),
                                        kProducts, tile};
  /// Whether a thread needs more than 128 registers.
  static constexpr bool many =
      by_tensor_cores(kProducts) || tile.channels * tile.run + plan.run.window > 80;
};

template <class kWindow, bool kGradient, Products kProducts, int... kNumbers>
class Convolution {
  using Cut = ConvolutionCut<kWindow, kGradient, kProducts, kNumbers...>;
  using Sums = TileSums<Cut, kProducts>;
  static constexpr ConvolutionTile kTile = Cut::tile;
  static constexpr ConvolutionPlan kPlan = Cut::plan;
  static constexpr int kTaps = kPlan.taps, kThreads = kTile.threads(kProducts);
  static constexpr int kOwners = kTile.owners(kProducts), kVectors = kTile.vectors(kProducts);
  static constexpr int kAll = kVectors * kOwners;            ///< fours of a part
  static constexpr bool kOneEach = kVectors <= kTile.parts;  ///< at most, to write
  static_assert(kThreads % 32 == 0);                         // warps fetch weights

 public:
  DEVICE explicit Convolution(const ConvolutionArguments& arguments) : a(arguments) {
    first_x = cluster() * kTile.width;
    first_y = block_y() * kTile.height;
    group = 0;
    first_channel = block_z() * kTile.block_channels;
    if (a.groups > 1) {
      const int channel_blocks = divided_up(a.to.channels, kTile.block_channels);
      group = block_z() / channel_blocks;
      first_channel = block_z() % channel_blocks * kTile.block_channels;
    }
    image = {a.in + group * a.from.floats(), a.from};
  }

  DEVICE void run() {
    const int chunks = divided_up(a.from.channels, kTile.chunk);
    const int of_block = cluster_size() == 1 ? chunks : divided_up(chunks, cluster_size());
    const int first = of_block * cluster_rank();
    const int end = first + of_block < chunks ? first + of_block : chunks;
    if (a.weights_early) {
#pragma unroll 1
      for (int chunk = first; chunk < end && chunk < first + 2; ++chunk) fetch_weights(chunk);
    }
    const Share mine = share();
    Outputs own{};
    if (kOneEach && mine.first + thread() < mine.end) own = outputs(mine.first + thread());
    wait_for_last();
    if (kOneEach && first < end) fetch_input(first);  // at once, as all else waits for it
    let_next_come();                                  // earlier, its blocks would be in the way
    if (kOneEach) load_beside(own);
    Sums sums(thread() % kOwners, thread() / kOwners);
#pragma unroll 1
    for (int chunk = first - 2; chunk < end; ++chunk) {
      if (chunk >= first) {
        wait<1>();
        meet();
        sums.add(stage(chunk), stage(chunk) + kPlan.input);
        meet();
      }
      if (chunk + 2 < end) {
        if (!kOneEach || chunk + 2 > first) fetch_input(chunk + 2);
        if (chunk >= first || !a.weights_early) fetch_weights(chunk + 2);
      }
      commit();
    }
    write_all(sums, own);
  }

 private:
  DEVICE static float* stage(int chunk) {
    return shared_memory() + chunk % 2 * kPlan.stage;
  }

  /// Starts fetching a chunk of input channels.
  DEVICE void fetch_input(int chunk) const {
    const int channel = chunk * kTile.chunk, y = first_y * kPlan.y.step - kPlan.y.pad;
    const int x = first_x * kPlan.x.step - kPlan.run.lead;
    if constexpr (kPlan.x.apart > 1 || kPlan.y.apart > 1) {
      fetch_apart(stage(chunk), channel, y, x);
    } else {
      fetch_tile<kThreads, kTile.chunk, kPlan.rows, kPlan.columns, kPlan.row, kPlan.plane>(
          stage(chunk), image, channel, y, x, kPlan.x.step == 1 && a.fours);
    }
  }
  /// Pixels with zeros between them (transposed convolution).
  DEVICE void fetch_apart(float* to, int channel, int first_row, int first_column) const {
    constexpr int kAll = kPlan.rows * kPlan.row;
#pragma unroll 1
    for (int i = thread(); i < kTile.chunk * kAll; i += kThreads) {
      const int c = channel + i / kAll;
      const int y = first_row + i % kAll / kPlan.row, x = first_column + i % kPlan.row;
      const bool there = c < a.from.channels && y >= 0 && y % kPlan.y.apart == 0 &&
                         y / kPlan.y.apart < a.from.height && x >= 0 && x % kPlan.x.apart == 0 &&
                         x / kPlan.x.apart < a.from.width;
      const long long source =
          (long long)(c * a.from.height + y / kPlan.y.apart) * a.from.width + x / kPlan.x.apart;
      copy_async(to + i / kAll * kPlan.plane + i % kAll, image.first + source, there);
    }
  }

  /// Starts fetching a chunk's weights: a warp takes runs of consecutive weights, coalesced across
  /// lanes. A lane's addresses in shared memory differ between runs only by an offset.
  DEVICE void fetch_weights(int chunk) const {
    constexpr int kOuter = kGradient ? kTile.chunk : kTile.block_channels;
    constexpr int kInner = kGradient ? kTile.block_channels : kTile.chunk;
    constexpr int kOnce = inner_at_once(kInner), kRun = kOnce * kTaps;
    constexpr int kWarps = kThreads / 32, kEach = divided_up(kRun, 32);
    const int lane = thread_again() % 32, channel = chunk * kTile.chunk;
    const int outers = kGradient ? a.from.channels : a.to.channels;
    const int inners = kGradient ? a.to.channels : a.from.channels;
    int places[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int i = lane + 32 * k;
      places[k] = place_of(0, i / kTaps, i % kTaps);
    }
    float* const to = stage(chunk) + kPlan.input - place_of(0, 0, 0);
#pragma unroll 1
    for (int i = thread() / 32; i < kOuter * (kInner / kOnce); i += kWarps) {
      const int outer = (kGradient ? channel : first_channel) + i % kOuter;
      const int inner = (kGradient ? first_channel : channel) + i / kOuter * kOnce;
      const float* const from =
          a.weights + ((long long)(group * outers + outer) * inners + inner) * kTaps + lane;
      float* const place = to + place_of(i % kOuter, i / kOuter * kOnce, 0);
      if (outer < outers && inner + kOnce <= inners) {  // few instructions per copy
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
          if (lane + 32 * k < kRun) copy_async(place + places[k], from + 32 * k, true);
        }
      } else {
        const int there = outer < outers ? (inners - inner) * kTaps - lane : 0;
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
          if (lane + 32 * k < kRun) copy_async(place + places[k], from + 32 * k, 32 * k < there);
        }
      }
    }
  }
  /// Position in shared memory of a weight, given its channels in memory order and its tap.
  DEVICE static int place_of(int outer, int inner, int tap) {
    return kGradient ? Sums::weight_place(outer, kTaps - 1 - tap, inner)
                     : Sums::weight_place(inner, tap, outer);
  }
  /// Inner channels per step: a lane holds their positions in registers.
  static PLAN int inner_at_once(int all) {
    constexpr int kMost = 8 * 32;
    if (all * kTaps <= kMost) return all;
    if (by_tensor_cores(kProducts)) return all % 16 == 0 && 16 * kTaps <= kMost ? 16 : 8;
    int once = all - 1;
    while (once > 1 && (all % once > 0 || once * kTaps > kMost)) --once;
    return once;
  }

  /// The fours that this block of the cluster writes.
  struct Share {
    int first, end;
  };
  DEVICE static Share share() {
    if (cluster_size() == 1) return {0, kAll};
    const int each = divided_up(kAll, cluster_size()), first = each * cluster_rank();
    return {first, first + each < kAll ? first + each : kAll};
  }
  /// Four adjacent outputs, and what they are combined with.
  struct Outputs {
    int channel, count;  ///< within the image
    long long place;
    float bias = 0, mask[4] = {1, 1, 1, 1};
  };
  DEVICE Outputs outputs(int four) const {
    const TilePlace at = Sums::place(four % kOwners, four / kOwners);
    const int o = first_channel + at.channel, y = first_y + at.y, x = first_x + at.x;
    const bool there = o < a.to.channels && y < a.to.height && x < a.to.width;
    const int channel = group * a.to.channels + o;
    return {channel, there ? a.to.width - x : 0,
            (long long)(channel)*a.to.height * a.to.width + y * a.to.width + x};
  }
  DEVICE void load_beside(Outputs& to) const {
    if (to.count == 0) return;
    if (!kGradient && a.bias) to.bias = a.bias[to.channel];
    if (!kGradient || !a.mask) return;
    if (a.writes_fours) return load<4>(to.mask, a.mask + to.place);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < to.count) to.mask[i] = a.mask[to.place + i];
    }
  }

  /// Coalesced through shared memory; each thread of the cluster adds some of the parts' sums.
  /// \param own the thread's outputs, if it has at most four.
  DEVICE void write_all(Sums& sums, const Outputs& own) {
    float4* const mine = reinterpret_cast<float4*>(shared_memory());
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      mine[(thread() / kOwners * kVectors + v) * kOwners + thread() % kOwners] = sums.four(v);
    if (cluster_size() == 1) {  // saves the remote reads
      meet();
      return add_parts<false>(mine, share(), own);
    }
    meet_cluster();
    add_parts<true>(mine, share(), own);
    meet_cluster();  // others may still be reading
  }
  template <bool kCluster>
  DEVICE void add_parts(const float4* mine, const Share& share, const Outputs& own) const {
#pragma unroll 1
    for (int i = share.first + thread(); i < share.end; i += kThreads) {
      float4 sum = make_float4(0, 0, 0, 0);
      for (int rank = 0; rank < (kCluster ? cluster_size() : 1); ++rank) {
#pragma unroll
        for (int part = 0; part < kTile.parts; ++part) {
          const float4* const at = mine + part * kAll + i;
          const float4 more = kCluster ? of_cluster(at, rank) : *at;
          sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
        }
      }
      if constexpr (kOneEach) return write(own, sum);
      Outputs to = outputs(i);
      load_beside(to);
      write(to, sum);
    }
  }
  DEVICE void write(const Outputs& to, float4 sum) const {
    float made[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      made[i] =
          kGradient ? (to.mask[i] <= 0 ? 0 : made[i]) : activated(made[i] + to.bias, a.activation);
    if (a.writes_fours) {
      if (to.count > 0) store<4>(a.out + to.place, made);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < to.count) a.out[to.place + i] = made[i];
    }
  }

  const ConvolutionArguments& a;
  int group, first_channel, first_x, first_y;
  Planes image;  ///< of the group
};

/// Grid: x clusters of tiles across, y tiles down, z blocks of channels of each group.
template <class kWindow, bool kGradient, Products kProducts, int... kNumbers>
BOUNDED_KERNEL(ConvolutionTile{kNumbers...}.threads(kProducts),
               (ConvolutionCut<kWindow, kGradient, kProducts, kNumbers...>::many))
convolution(BY_VALUE ConvolutionArguments arguments) {
  Convolution<kWindow, kGradient, kProducts, kNumbers...>(arguments).run();
}

/// One thread per output, for few channels or many small groups: depthwise convolutions.
template <class kWindow, bool kGradient>
KERNEL(kThreads)
plain_convolution(BY_VALUE ConvolutionArguments a) {
  start();
  constexpr Side kY = kWindow::rows(kGradient), kX = kWindow::columns(kGradient);
  constexpr int kTaps = kY.taps * kX.taps;
  [[maybe_unused]] constexpr int kUnroll = kTaps <= kMostUnrolled ? kTaps : 1;
  const int i = block() * kThreads + thread(), plane = a.to.pixels();
  if (i >= a.groups * a.to.channels * plane) return;
  const int channel = i / plane, group = channel / a.to.channels, y = i % plane / a.to.width,
            x = i % a.to.width;
  float sum = 0;
  for (int c = 0; c < a.from.channels; ++c) {
    const int in = group * a.from.channels + c;
    const float* const image = a.in + (long long)(in)*a.from.pixels();
    const float* const weights =
        a.weights + (kGradient ? (long long)(in)*a.to.channels + channel % a.to.channels
                               : (long long)(channel)*a.from.channels + c) *
                        kTaps;
#pragma unroll kUnroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const int from_y = y * kY.step - kY.pad + tap / kX.taps * kY.dilation;
      const int from_x = x * kX.step - kX.pad + tap % kX.taps * kX.dilation;
      if (from_y >= 0 && from_y % kY.apart == 0 && from_y / kY.apart < a.from.height &&
          from_x >= 0 && from_x % kX.apart == 0 && from_x / kX.apart < a.from.width)
        sum = fmaf(weights[kGradient ? kTaps - 1 - tap : tap],
                   image[from_y / kY.apart * a.from.width + from_x / kX.apart], sum);
    }
  }
  sum = activated(a.bias ? sum + a.bias[channel] : sum, a.activation);
  a.out[i] = a.mask && a.mask[i] <= 0 ? 0 : sum;
}

}  // namespace millrace::gpu
