// A convolution and its data gradient: a block makes a tile of pixels of some channels, a thread
// `pixels` neighbours of `channels`, from tiles of the input and the weights in shared memory, of
// which the next are on their way while one is used. Products are added in one order: input
// channels, rows of taps, taps.
#pragma once

#include "capture/program/cuda/device.cuh"

namespace millrace::gpu {

template <int kKernel, int kStride, bool kGradient, Activation kActivation, int... kNumbers>
class Convolution {
  static constexpr ConvolutionTile kTile{kNumbers...};
  static constexpr ConvolutionPlan kPlan{kKernel, kStride, kGradient, kTile};
  static constexpr int kTaps = kPlan.taps, kThreads = kTile.threads();

 public:
  DEVICE explicit Convolution(const ConvolutionArguments& arguments) : a(arguments) {
    const int across = divided_up(a.out_width, kTile.width);
    const int tiles = across * divided_up(a.out_height, kTile.height);
    const int tile = block() % tiles;
    first_channel = block() / tiles * kTile.block_channels;
    first_x = tile % across * kTile.width;
    first_y = tile / across * kTile.height;
    const int place = thread() % kTile.places();
    row = place / (kTile.width / kTile.pixels);
    column = place % (kTile.width / kTile.pixels) * kTile.pixels;
    group = thread() / kTile.places() % kTile.groups();
    part = thread() / (kTile.places() * kTile.groups());
  }

  DEVICE void run() {
    const int chunks = divided_up(a.in_channels, kTile.chunk);
#pragma unroll 1
    for (int chunk = -2; chunk < chunks; ++chunk) {  // in one place: it is inlined
      if (chunk >= 0) {
        wait<1>();
        meet();
        add_products(shared_memory() + chunk % 2 * kPlan.stage);
        meet();
      }
      begin(chunk + 2);
    }
    if constexpr (kTile.parts > 1) {
      wait<0>();
      meet();
      add_parts();
      if (part > 0) return;
    }
    write();
  }

 private:
  /// Begins to fetch a chunk of input channels and their weights.
  DEVICE void begin(int chunk) {
    if (chunk * kTile.chunk < a.in_channels) {
      float* const stage = shared_memory() + chunk % 2 * kPlan.stage;
      fetch_weights(stage + kPlan.input, chunk * kTile.chunk);
      // An image whose rows are fours is read so.
      if (kPlan.step == 1 && kPlan.apart == 1 && a.in_width % 4 == 0) {
        fetch_fours(stage, chunk * kTile.chunk);
      } else {
        fetch_input(stage, chunk * kTile.chunk);
      }
    }
    commit();
  }

  DEVICE void fetch_fours(float* to, int channel) const {
    constexpr int kFours = kPlan.row / 4;
#pragma unroll 2
    for (int i = thread(); i < kTile.chunk * kPlan.rows * kFours; i += kThreads) {
      const int c = channel + i / (kPlan.rows * kFours);
      const int y = first_y - kPlan.pad + i / kFours % kPlan.rows;
      const int x = first_x - kPlan.lead + i % kFours * 4;
      const bool there = c < a.in_channels && y >= 0 && y < a.in_height && x >= 0 && x < a.in_width;
      copy_async_4(to + i * 4, there ? at(c, y, x) : a.in, there);
    }
  }
  DEVICE void fetch_input(float* to, int channel) const {
#pragma unroll 2
    for (int i = thread(); i < kPlan.input; i += kThreads) {
      const int c = channel + i / (kPlan.rows * kPlan.row);
      const int y = first_y * kPlan.step - kPlan.pad + i / kPlan.row % kPlan.rows;
      const int x = first_x * kPlan.step - kPlan.lead + i % kPlan.row;
      const bool there = c < a.in_channels && y >= 0 && y % kPlan.apart == 0 &&
                         y / kPlan.apart < a.in_height && x >= 0 && x % kPlan.apart == 0 &&
                         x / kPlan.apart < a.in_width;
      copy_async(to + i, there ? at(c, y / kPlan.apart, x / kPlan.apart) : a.in, there);
    }
  }
  DEVICE const float* at(int c, int y, int x) const {
    return a.in + (long long)(c)*a.in_height * a.in_width + y * a.in_width + x;
  }

  /// [in][tap][out], whose outs are what a thread reads at once.
  DEVICE void fetch_weights(float* to, int channel) const {
    constexpr int kAll = kTile.chunk * kTaps * kTile.block_channels;
#pragma unroll 2
    for (int i = thread(); i < kAll; i += kThreads) {
      // In the order of their addresses.
      constexpr int kRun = (kGradient ? kTile.block_channels : kTile.chunk) * kTaps;
      const int outer = i / kRun, inner = i % kRun / kTaps, tap = i % kTaps;
      const int in = kGradient ? outer : inner, out = kGradient ? inner : outer;
      const int c = channel + in, o = first_channel + out;
      const bool there = c < a.in_channels && o < a.out_channels;
      const long long row =
          kGradient ? (long long)(c)*a.out_channels + o : (long long)(o)*a.in_channels + c;
      copy_async(to + (in * kTaps + (kGradient ? kTaps - 1 - tap : tap)) * kPlan.weight_row + out,
                 there ? a.weights + row * kTaps + tap : a.weights, there);
    }
  }

  DEVICE void add_products(const float* stage) {
    const float* const input = stage + row * kPlan.step * kPlan.row + column * kPlan.step;
    const float* const weights = stage + kPlan.input + group * kTile.channels;
    // Few sums leave registers for all rows of taps at once.
    [[maybe_unused]] constexpr int kUnroll = kTile.channels * kTile.pixels <= 32 || kKernel <= 3 ? kKernel : 1;
    constexpr int kOwn = kTile.chunk / kTile.parts;
#pragma unroll 1
    for (int c = part * kOwn; c < (part + 1) * kOwn; ++c) {
#pragma unroll kUnroll
      for (int ky = 0; ky < kKernel; ++ky) {
        float window[kPlan.window];
        load<kPlan.window>(window, input + (c * kPlan.rows + ky) * kPlan.row + kPlan.first);
#pragma unroll
        for (int kx = 0; kx < kKernel; ++kx) {
          float w[kTile.channels];
          load<kTile.channels>(w, weights + (c * kTaps + ky * kKernel + kx) * kPlan.weight_row);
#pragma unroll
          for (int o = 0; o < kTile.channels; ++o) {
#pragma unroll
            for (int p = 0; p < kTile.pixels; ++p)
              sums[o][p] = fmaf(w[o], window[kPlan.skip + p * kPlan.step + kx], sums[o][p]);
          }
        }
      }
    }
  }

  /// The first part takes the others' sums, one after another.
  DEVICE void add_parts() {
    constexpr int kOthers = kTile.places() * kTile.groups();
    float* const mine = shared_memory() + thread();
#pragma unroll
    for (int i = 0; i < kTile.channels * kTile.pixels; ++i)
      mine[i * kThreads] = sums[i / kTile.pixels][i % kTile.pixels];
    meet();
    if (part > 0) return;
    for (int other = 1; other < kTile.parts; ++other) {
#pragma unroll
      for (int i = 0; i < kTile.channels * kTile.pixels; ++i)
        sums[i / kTile.pixels][i % kTile.pixels] += mine[i * kThreads + other * kOthers];
    }
  }

  DEVICE void write() {
    const int y = first_y + row, x = first_x + column;
    const int channel = first_channel + group * kTile.channels;
    if (a.bias) {
#pragma unroll
      for (int o = 0; o < kTile.channels; ++o) {
        const float bias = channel + o < a.out_channels ? a.bias[channel + o] : 0;
#pragma unroll
        for (int p = 0; p < kTile.pixels; ++p) sums[o][p] += bias;
      }
    }
#pragma unroll
    for (int i = 0; i < kTile.channels * kTile.pixels; ++i) {
      float& sum = sums[i / kTile.pixels][i % kTile.pixels];
      sum = activated(sum, kActivation);
    }
    if (y >= a.out_height) return;
#pragma unroll
    for (int o = 0; o < kTile.channels; ++o) {
      if (channel + o >= a.out_channels) return;
      const long long place =
          (long long)(channel + o) * a.out_height * a.out_width + y * a.out_width + x;
#pragma unroll
      for (int p = 0; p < kTile.pixels; p += 4) {
        if (a.out_width % 4 == 0) {
          if (x + p < a.out_width) write_four(place + p, sums[o] + p);
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (x + p + i < a.out_width)
              a.out[place + p + i] = a.mask && a.mask[place + p + i] <= 0 ? 0 : sums[o][p + i];
          }
        }
      }
    }
  }
  DEVICE void write_four(long long place, const float* made) const {
    float mask[4] = {1, 1, 1, 1};
    if (a.mask) load<4>(mask, a.mask + place);
    *reinterpret_cast<float4*>(a.out + place) =
        make_float4(mask[0] <= 0 ? 0 : made[0], mask[1] <= 0 ? 0 : made[1],
                    mask[2] <= 0 ? 0 : made[2], mask[3] <= 0 ? 0 : made[3]);
  }

  const ConvolutionArguments& a;
  int first_channel, first_x, first_y, row, column, group, part;
  float sums[kTile.channels][kTile.pixels] = {};
};

/// divided_up(out_channels, kBlockChannels) times the tiles' number of blocks.
template <int kKernel, int kStride, bool kGradient, Activation kActivation, int... kNumbers>
KERNEL(ConvolutionTile{kNumbers...}.threads())
convolution(BY_VALUE ConvolutionArguments arguments) {
  Convolution<kKernel, kStride, kGradient, kActivation, kNumbers...>(arguments).run();
}

}  // namespace millrace::gpu
