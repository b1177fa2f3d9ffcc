// Convolutions of stride 1 as products in a transformed domain, square by square: an FFT of
// overlapping squares, or Winograd's. A product a frequency replaces kernel^2 multiply-adds a
// pixel.
#include <algorithm>

#include "capture/program/kernels/internal.h"
#include "capture/program/kernels/transform_numbers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/transformed.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

template <class Action>
void with(Transform transform, const Action& action) {
  switch (transform) {
    case Transform::kFft12:
      return action(Fourier<12>());
    case Transform::kFft20:
      return action(Fourier<20>());
    case Transform::kFft30:
      return action(Fourier<30>());
    case Transform::kWinograd43:
      return action(Winograd<4, 3>());
    case Transform::kWinograd63:
      return action(Winograd<6, 3>());
    case Transform::kWinograd45:
      return action(Winograd<4, 5>());
  }
}

/// The frequencies of `lanes` channels; pixels outside the window are zeros.
void spread(Transform transform, Side side, const float* image, const Window& window,
            const Spectrum& to) {
  with(transform, [&](auto kind) { kind.spread(side, image, window, to); });
}
/// Writes the window's part of the square.
void gather(Transform transform, Side side, const Spectrum& from, const Finish& to,
            const Window& window) {
  with(transform, [&](auto kind) { kind.gather(side, from, to, window); });
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(spread);
HWY_EXPORT(gather);

namespace {

struct Kind {
  const char* name;
  Transform transform;
  int side, kernel;  ///< kernel 0: any that leaves room for outputs
  bool accurate;
  /// What a square of `lanes` channels takes, in the time of so many multiply-adds of vectors:
  /// images there and back, weights there and back. Measured with 8 lanes on a Zen 3 of 2021.
  double image, output, weights, weight_gradient;
};
constexpr Kind kKinds[] = {
    {"fft12", Transform::kFft12, 12, 0, true, 2500, 2200, 1100, 1500},
    {"fft20", Transform::kFft20, 20, 0, true, 10000, 9000, 4500, 4900},
    {"fft30", Transform::kFft30, 30, 0, true, 31000, 21500, 16500, 21700},
    {"winograd4x3", Transform::kWinograd43, 6, 3, true, 420, 290, 220, 140},
    {"winograd6x3", Transform::kWinograd63, 8, 3, false, 690, 500, 330, 230},
    {"winograd4x5", Transform::kWinograd45, 8, 5, false, 690, 370, 350, 300},
};
bool is_fft(const Kind& kind) {
  return kind.kernel == 0;
}
int frequencies_of(const Kind& kind) {
  const int half = kind.side / 2;
  return is_fft(kind) ? (half - 1) * kind.side + 2 * (half + 1) : kind.side * kind.side;
}

bool can_do(const Kind& kind, const Convolution& c) {
  if (c.stride != 1 || c.kernel == 1) return false;
  return is_fft(kind) ? 2 * c.kernel <= kind.side + 1 : kind.kernel == c.kernel;
}

/// Weights' spectra larger than this leave a core's own cache between the steps.
constexpr double kCachedFloats = 256 << 10;

double vectors(int channels) {
  return double(round_up(std::size_t(channels), lanes()) / lanes());
}

/// Images: of the products' depth, and of their columns.
std::pair<Layout, Layout> sides_of(const Convolution& c) {
  if (c.pass == Pass::kDataGradient) return {c.output, c.input};
  return {c.input, c.output};
}

/// In the time of multiply-adds of vectors.
double cost_of(const Kind& kind, const Convolution& c) {
  const auto [from, to] = sides_of(c);
  const int tile = kind.side - c.kernel + 1;
  const double tiles = double((to.height + tile - 1) / tile) * ((to.width + tile - 1) / tile);
  const double taps = double(c.kernel) * c.kernel,
               of_weights = from.channels * vectors(to.channels);
  const double product = frequencies_of(kind) * of_weights * (is_fft(kind) ? 4.6 : 1.3);
  const double spectra = frequencies_of(kind) * of_weights * double(lanes());  // in floats
  const double spilled = spectra > kCachedFloats ? 1.6 * spectra : 0;
  const double inputs = tiles * vectors(from.channels) * kind.image;
  const double outputs = tiles * vectors(to.channels);
  if (c.pass == Pass::kWeightGradient) {  // a product's sums go to memory
    return inputs + outputs * kind.image + (tiles + 2) * product +
           of_weights * (kind.weight_gradient + 15 * taps) + spilled;
  }
  return inputs + outputs * kind.output + tiles * product +
         of_weights * (kind.weights + 10 * taps) + spilled;
}

/// The same of the kernels that sum products directly.
double direct_cost(const Convolution& c) {
  const auto [from_side, to_side] = sides_of(c);
  const int from = from_side.channels, to = to_side.channels;
  const double pixels = double(c.output.height) * c.output.width, side = c.kernel;
  const double wide = pixels * side * side * from * vectors(to);
  if (c.pass == Pass::kWeightGradient)
    return 1.25 * std::min(wide, pixels * side * side * to * vectors(from));
  const double narrow = pixels * to * (1.5 * side * vectors(c.kernel * from) + 4);
  return std::min(1.17 * wide, narrow);
}

/// Floats of one plane of each image in the cache at a time.
constexpr std::size_t kBlockFloats = 128 << 10;

/// Spectra of one side of the products, [frequency][count][real and imaginary][channels].
struct Spectra {
  const std::size_t begin;
  std::size_t channels = 0;  ///< in whole vectors
  std::size_t parts = 1, plane = 0, floats = 0;

  /// \param begin where they lie in shared memory.
  Spectra(std::size_t begin, std::size_t wanted, std::size_t count, std::size_t parts,
          std::size_t frequencies)
      : begin(begin), channels(round_up(wanted, lanes())), parts(parts) {
    // Not a power of two, or all planes would compete for one place of the cache.
    plane = round_up(count * row(), 16) + 16;
    floats = plane * frequencies;
  }
  std::size_t row() const { return parts * channels; }
  float* of(const Operands& operands, std::size_t frequency) const {
    return operands.shared + begin + frequency * plane;
  }
  Spectrum at(const Operands& operands, std::size_t index, std::size_t channel) const {
    return {of(operands, 0) + index * row() + channel, plane, channels};
  }
  /// Calls work(index below `count`, first channel) for a share of all vectors of channels.
  template <class Work>
  void each(std::size_t count, Share share, const Work& work) const {
    const std::size_t vectors = channels / lanes();
    const auto [first, last] = share.of(count * vectors);
    for (std::size_t i = first; i < last; ++i) work(i / vectors, i % vectors * lanes());
  }
};

class TransformedKernel final : public Kernel {
 public:
  TransformedKernel(const Convolution& c, const Kind& kind)
      : c_(c),
        kind_(kind),
        tile_(kind.side - c.kernel + 1),
        tiles_across_((c.output.width + tile_ - 1) / tile_),
        tiles_(std::size_t((c.output.height + tile_ - 1) / tile_) * tiles_across_),
        frequencies_(std::size_t(frequencies_of(kind))),
        from_(sides_of(c).first),
        to_(sides_of(c).second),
        blocks_(blocks()),
        block_(round_up((tiles_ + blocks_ - 1) / blocks_, 4)),  // rows of a product
        a_(0, from_.channels, block_, parts(), frequencies_),
        b_(a_.floats, to_.channels, block_, parts(), frequencies_),
        weights_(a_.floats + b_.floats, to_.channels, from_.channels, parts(), frequencies_) {
    const int taps = c.kernel * c.kernel;
    for (int q = 0; q < taps; ++q) {
      const int tap = gradient() ? taps - 1 - q : q;
      places_.push_back(std::uint32_t(tap * lanes()));
    }
  }

  std::size_t scratch_floats() const override {
    return std::size_t(kind_.side) * kind_.side * lanes_;
  }
  std::size_t shared_floats(int) const override { return a_.floats + b_.floats + weights_.floats; }
  /// Block by block: the transforms there, the products; with the next block's the way back.
  int phases(int) const override { return int(2 * blocks_ + 1); }

  void run(const Operands& operands, int phase, Share share) const override {
    const std::size_t block = std::size_t(phase) / 2;
    if (phase % 2 == 1) return multiply(operands, block, share);
    if (weight_gradient()) {
      if (block == blocks_) return finish_weights(operands, share);
      spread_images(operands.x, c_.input, Side::kInput, block, operands, share);
      spread_images(operands.source, c_.output, Side::kGradient, block, operands, share);
      return;
    }
    if (block == 0) spread_weights(operands, share);
    if (block > 0) finish_images(operands, block - 1, share);
    if (block < blocks_)
      spread_images(operands.source, from_, Side::kInput, block, operands, share);
  }

 private:
  bool gradient() const { return c_.pass == Pass::kDataGradient; }
  bool weight_gradient() const { return c_.pass == Pass::kWeightGradient; }
  std::size_t parts() const { return is_fft(kind_) ? 2 : 1; }
  /// An FFT's way there and back multiplies by this.
  float scale() const { return is_fft(kind_) ? 1.0f / float(4 * kind_.side * kind_.side) : 1.0f; }
  std::size_t blocks() const {
    const std::size_t of_tile = frequencies_ * parts() *
                                (round_up(from_.channels, lanes_) + round_up(to_.channels, lanes_));
    const std::size_t most = std::max<std::size_t>(12, kBlockFloats / of_tile);
    return (tiles_ + most - 1) / most;
  }
  /// A square of its own, [side][side][lanes].
  Window window(int side) const {
    return {.row = side * lanes_,
            .column = lanes_,
            .bottom = side,
            .right = side,
            .channels = int(lanes_)};
  }
  std::size_t tiles_in(std::size_t block) const {
    return std::min(block_, tiles_ - block * block_);
  }

  /// Where a tile's square, its corner `border` pixels up and left of the tile, meets channels of
  /// the image; at most `extent` rows and columns of it.
  Window window(std::size_t tile, const Layout& image, std::size_t channel, int border,
                int extent) const {
    const int y = int(tile) / tiles_across_ * tile_ - border;
    const int x = int(tile) % tiles_across_ * tile_ - border;
    return {.row = image.row(),
            .column = std::size_t(image.channels),
            .top = std::max(0, -y),
            .bottom = std::min(extent, image.height - y),
            .left = std::max(0, -x),
            .right = std::min(extent, image.width - x),
            .channels = image.channels - int(channel),
            .offset = y * std::ptrdiff_t(image.row()) + x * std::ptrdiff_t(image.channels) +
                      std::ptrdiff_t(channel)};
  }

  void spread_images(const float* image, const Layout& layout, Side side, std::size_t block,
                     const Operands& operands, Share share) const {
    const bool input = side == Side::kInput;
    const int border = input ? c_.kernel / 2 : 0, extent = input ? kind_.side : tile_;
    const Spectra& spectra = input ? a_ : b_;
    spectra.each(tiles_in(block), share, [&](std::size_t index, std::size_t channel) {
      Window w = window(block * block_ + index, layout, channel, border, extent);
      const float* corner = image + w.offset;
      if (w.channels < int(lanes_)) corner = fill_lanes(corner, w, operands.scratch);
      HWY_DYNAMIC_DISPATCH(spread)
      (kind_.transform, side, corner, w, spectra.at(operands, index, channel));
    });
  }

  /// Copies what is there to a square of whole vectors, which becomes the window's image.
  const float* fill_lanes(const float* image, Window& w, float* square) const {
    const Window from = w;
    w = window(kind_.side);
    w.top = from.top, w.bottom = from.bottom, w.left = from.left, w.right = from.right;
    for (int y = w.top; y < w.bottom; ++y) {
      for (int x = w.left; x < w.right; ++x) {
        const float* const pixel =
            image + y * std::ptrdiff_t(from.row) + x * std::ptrdiff_t(from.column);
        float* const to = square + y * w.row + x * w.column;
        std::fill(std::copy_n(pixel, from.channels, to), to + lanes_, 0.0f);
      }
    }
    return square;
  }

  void spread_weights(const Operands& operands, Share share) const {
    float* const square = operands.scratch;
    const std::size_t taps = places_.size(), in = c_.input.channels;
    weights_.each(from_.channels, share, [&](std::size_t from, std::size_t to) {
      const std::size_t rows = std::min(lanes_, to_.channels - to);
      if (gradient()) {
        to_lanes(operands.weights + (from * in + to) * taps, taps, rows, places_, square);
      } else {
        to_lanes(operands.weights + (to * in + from) * taps, in * taps, rows, places_, square);
      }
      scale_taps(square);
      HWY_DYNAMIC_DISPATCH(spread)
      (kind_.transform, Side::kWeights, square, window(c_.kernel), weights_.at(operands, from, to));
    });
  }

  void scale_taps(float* square) const {
    const float factor = scale();
    for (std::size_t i = 0; i < places_.size() * lanes_; ++i) square[i] *= factor;
  }

  void multiply(const Operands& operands, std::size_t block, Share share) const {
    Products p{.complex = is_fft(kind_)};
    p.vectors = int(b_.channels / lanes_);
    p.a_imaginary = a_.channels;
    p.b_imaginary = p.c_imaginary = b_.channels;
    p.b_k = p.c_row = b_.row();
    const int tiles = int(tiles_in(block)), channels = from_.channels;
    const bool sums_tiles = weight_gradient();
    p.rows = sums_tiles ? channels : tiles;
    p.depth = sums_tiles ? tiles : channels;
    p.a_row = sums_tiles ? 1 : a_.row();
    p.a_k = sums_tiles ? a_.row() : 1;
    p.accumulate = sums_tiles && block > 0;
    const auto [begin, end] = share.of(std::size_t(frequencies_));
    for (std::size_t f = begin; f < end; ++f) {
      float *const image = b_.of(operands, f), *const kernel = weights_.of(operands, f);
      p.a = a_.of(operands, f);
      p.b = sums_tiles ? image : kernel;
      p.c = sums_tiles ? kernel : image;
      products(p);
    }
  }

  void finish_images(const Operands& operands, std::size_t block, Share share) const {
    b_.each(tiles_in(block), share, [&](std::size_t index, std::size_t channel) {
      const Window w = window(block * block_ + index, to_, channel, 0, tile_);
      const Finish finish{.bias = operands.bias ? operands.bias + channel : nullptr,
                          .activation = c_.activation,
                          .mask = operands.mask ? operands.mask + w.offset : nullptr,
                          .image = operands.made + w.offset};
      HWY_DYNAMIC_DISPATCH(gather)
      (kind_.transform, Side::kOutput, b_.at(operands, index, channel), finish, w);
    });
  }

  void finish_weights(const Operands& operands, Share share) const {
    const std::size_t taps = places_.size(), in = c_.input.channels;
    weights_.each(in, share, [&](std::size_t from, std::size_t to) {
      HWY_DYNAMIC_DISPATCH(gather)
      (kind_.transform, Side::kWeights, weights_.at(operands, from, to),
       Finish{.image = operands.scratch}, window(c_.kernel));
      scale_taps(operands.scratch);
      from_lanes(operands.scratch, places_, operands.made + (to * in + from) * taps, in * taps,
                 std::min(lanes_, to_.channels - to), c_.accumulate);
    });
    bias_gradient(c_, operands, share);
  }

  const std::size_t lanes_ = lanes();
  const Convolution c_;
  const Kind kind_;
  const int tile_;  ///< outputs of a square
  const int tiles_across_;
  const std::size_t tiles_;
  const std::size_t frequencies_;
  const Layout from_, to_;            ///< images: of the products' depth, and of their columns
  const std::size_t blocks_, block_;  ///< of tiles, and tiles in each but the last
  const Spectra a_, b_, weights_;
  std::vector<std::uint32_t> places_;  ///< of the taps in a square
};

}  // namespace

std::vector<std::string> transforms(const Convolution& c) {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) {
    if (can_do(kind, c)) names.push_back(kind.name);
  }
  return names;
}

std::string faster_transform(const Convolution& c) {
  constexpr double kWorthIt = 0.8;  // small ones are estimated worse
  const char* best = "";
  double least = kWorthIt * direct_cost(c);
  for (const Kind& kind : kKinds) {
    if (!can_do(kind, c) || !(kind.accurate || c.method == Method::kFast)) continue;
    const double cost = cost_of(kind, c);
    if (cost >= least) continue;
    best = kind.name;
    least = cost;
  }
  return best;
}

std::unique_ptr<Kernel> make_transformed(const Convolution& c, const std::string& name) {
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return std::make_unique<TransformedKernel>(c, kind);
  }
  return nullptr;
}

}  // namespace millrace::kernels
#endif
