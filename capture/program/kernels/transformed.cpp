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

/// Rows of the square from `rows` on are zeros; an FFT does not read them.
void spread(Transform transform, Side side, const Square& from, int rows, const Spectrum& to) {
  with(transform, [&](auto kind) { kind.spread(side, from, rows, to); });
}
/// Makes at least the first `rows` rows of outputs or, with kWeights, of weight gradients:
/// [side][side][lanes].
void gather(Transform transform, Side side, const Spectrum& from, int rows, float* square) {
  with(transform, [&](auto kind) { kind.gather(side, from, rows, square); });
}

/// Copies what is there, zeros elsewhere. `image`: where the square's pixel (0, 0) is or would be.
void copy_square(const float* image, const Window& window, float* square) {
  const Window w = window;  // which no store can change
  const D d;
  const bool full = w.channels >= int(kLanes);
  const auto part = first_lanes(std::size_t(w.channels));
  for (int y = 0; y < w.side; ++y) {
    float* to = square + y * w.side * kLanes;
    const bool there = y >= w.top && y < w.bottom;
    const int left = there ? w.left : w.side, right = there ? w.right : w.side;
    const float* from = image + y * std::ptrdiff_t(w.row) + left * std::ptrdiff_t(w.column);
    int x = 0;
    for (; x < left; ++x) hn::Store(hn::Zero(d), d, to + x * kLanes);
    for (; x < right; ++x, from += w.column)
      hn::Store(full ? hn::LoadU(d, from) : load_part(part, from), d, to + x * kLanes);
    for (; x < w.side; ++x) hn::Store(hn::Zero(d), d, to + x * kLanes);
  }
}

/// image = activation(square + bias), or with a mask (square + bias), zeros where it is at most 0.
/// Bias and mask may be null; the mask lies as the image.
void finish_square(const float* square, const float* bias, Activation activation, const float* mask,
                   float* image, const Window& window) {
  const Window w = window;  // which no store can change
  const D d;
  const auto part = first_lanes(std::size_t(w.channels));
  const bool full = w.channels >= int(kLanes);
  const V added = bias ? load_part(part, bias) : hn::Zero(d);
  const auto finish = [&](const auto& finished) HWY_ATTR {
    for (int y = w.top; y < w.bottom; ++y) {
      const float* from = square + (y * w.side + w.left) * kLanes;
      float* to = image + y * w.row + w.left * w.column;
      const float* masks = mask + y * w.row + w.left * w.column;
      for (int x = w.left; x < w.right; ++x, from += kLanes, to += w.column, masks += w.column) {
        const V v = finished(hn::Add(hn::Load(d, from), added), masks);
        if (full) {
          hn::StoreU(v, d, to);
        } else {
          store_part(v, part, to);
        }
      }
    }
  };
  if (mask) {
    finish([&](V v, const float* masks) HWY_ATTR {
      return hn::IfThenZeroElse(hn::Le(load_part(part, masks), hn::Zero(d)), v);
    });
  } else if (activation == Activation::kRelu) {
    finish([](V v, const float*) HWY_ATTR { return relu_of(v); });
  } else if (activation == Activation::kSigmoid) {
    finish([](V v, const float*) HWY_ATTR { return sigmoid_of(v); });
  } else {
    finish([](V v, const float*) HWY_ATTR { return v; });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(spread);
HWY_EXPORT(gather);
HWY_EXPORT(copy_square);
HWY_EXPORT(finish_square);

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
    {"fft20", Transform::kFft20, 20, 0, true, 10000, 8500, 4500, 4900},
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
        block_((tiles_ + blocks_ - 1) / blocks_),
        a_(0, from_.channels, block_, parts(), frequencies_),
        b_(a_.floats, to_.channels, block_, parts(), frequencies_),
        weights_(a_.floats + b_.floats, to_.channels, from_.channels, parts(), frequencies_) {
    const int taps = c.kernel * c.kernel;
    for (int q = 0; q < taps; ++q) {
      const int tap = gradient() ? taps - 1 - q : q;
      places_.push_back(std::uint32_t((tap / c.kernel * kind.side + tap % c.kernel) * lanes()));
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
  Square scratch(const Operands& operands) const {
    return {operands.scratch, kind_.side * lanes_, lanes_};
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
            .side = kind_.side,
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
      const Window w = window(block * block_ + index, layout, channel, border, extent);
      const float* const corner = image + w.offset;
      Square from{corner, w.row, w.column};
      const int side_there = std::min(w.bottom - w.top, w.right - w.left);
      if (side_there < kind_.side || w.channels < int(lanes_)) {
        HWY_DYNAMIC_DISPATCH(copy_square)(corner, w, operands.scratch);
        from = scratch(operands);
      }
      HWY_DYNAMIC_DISPATCH(spread)
      (kind_.transform, side, from, w.bottom, spectra.at(operands, index, channel));
    });
  }

  void spread_weights(const Operands& operands, Share share) const {
    float* const square = operands.scratch;
    std::fill_n(square, scratch_floats(), 0.0f);
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
      (kind_.transform, Side::kWeights, scratch(operands), c_.kernel,
       weights_.at(operands, from, to));
    });
  }

  void scale_taps(float* square) const {
    const float factor = scale();
    for (const std::uint32_t place : places_) {
      for (std::size_t l = 0; l < lanes_; ++l) square[place + l] *= factor;
    }
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
      HWY_DYNAMIC_DISPATCH(gather)
      (kind_.transform, Side::kOutput, b_.at(operands, index, channel), w.bottom, operands.scratch);
      HWY_DYNAMIC_DISPATCH(finish_square)
      (operands.scratch, operands.bias ? operands.bias + channel : nullptr, c_.activation,
       operands.mask ? operands.mask + w.offset : nullptr, operands.made + w.offset, w);
    });
  }

  void finish_weights(const Operands& operands, Share share) const {
    const std::size_t taps = places_.size(), in = c_.input.channels;
    weights_.each(in, share, [&](std::size_t from, std::size_t to) {
      HWY_DYNAMIC_DISPATCH(gather)
      (kind_.transform, Side::kWeights, weights_.at(operands, from, to), c_.kernel,
       operands.scratch);
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
