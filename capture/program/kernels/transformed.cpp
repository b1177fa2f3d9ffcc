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

/// Spectra of one side of the products, [frequency][count][vectors of channels], each vector's real
/// parts before its imaginary ones.
struct Spectra {
  const std::size_t begin;
  const std::size_t row;    ///< floats to the next of `count`
  const std::size_t plane;  ///< floats to the next frequency
  const std::size_t floats;

  /// \param begin where they lie in shared memory.
  Spectra(std::size_t begin, std::size_t row, std::size_t count, std::size_t frequencies)
      : begin(begin),
        row(row),
        // Not a power of two, or all planes would compete for one place of the cache.
        plane(round_up(count * row, 16) + 16),
        floats(plane * frequencies) {}
  std::size_t end() const { return begin + floats; }
  float* of(const Operands& operands, std::size_t frequency) const {
    return operands.shared + begin + frequency * plane;
  }
  Spectrum at(const Operands& operands, std::size_t index, std::size_t offset) const {
    return {of(operands, 0) + index * row + offset, plane};
  }
};

/// Calls work(index below `count`, first channel) for a share of all vectors of channels.
template <class Work>
void each_vector(std::size_t count, std::size_t channels, Share share, const Work& work) {
  const std::size_t vectors = (channels + lanes() - 1) / lanes();
  const auto [first, last] = share.of(count * vectors);
  for (std::size_t i = first; i < last; ++i) work(i / vectors, i % vectors * lanes());
}

/// The products are made in rounds: each takes some tiles, or some columns of the weights' spectra,
/// so that what it works on stays in the core's own cache.
struct Rounds {
  bool by_columns = false;
  std::size_t count = 1;
  std::size_t tiles = 0, columns = 0;  ///< of each but the last; columns: channels

  /// \param tile, column floats of a tile's spectra of the depth, and of a column's.
  Rounds(std::size_t all_tiles, std::size_t all_columns, std::size_t tile, std::size_t column,
         std::size_t tile_of_columns)
      : tiles(all_tiles), columns(round_up(all_columns, lanes())) {
    const auto rounds = [](std::size_t all, std::size_t each) { return (all + each - 1) / each; };
    const std::size_t some_tiles =
        std::max<std::size_t>(12, kBlockFloats / (tile + tile_of_columns));
    const std::size_t some_columns =
        std::max<std::size_t>(1, kBlockFloats / (column * lanes())) * lanes();
    const std::size_t of_tiles = rounds(tiles, some_tiles);
    const std::size_t of_columns = rounds(columns, some_columns);
    // What goes to memory and comes back every round.
    const auto moved = [](std::size_t floats, std::size_t rounds) {
      return floats > std::size_t(kCachedFloats) ? floats * (1 + rounds) : 0;
    };
    by_columns = moved(tiles * tile, of_columns) < moved(columns * column, of_tiles);
    count = by_columns ? of_columns : of_tiles;
    if (by_columns) columns = std::min(columns, some_columns);
    if (!by_columns) tiles = round_up(rounds(tiles, count), 4);  // rows of a product
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
        rounds_(tiles_, to_.channels, frequencies_ * row(from_.channels),
                frequencies_ * parts() * from_.channels, frequencies_ * row(to_.channels)),
        a_(0, row(from_.channels), rounds_.tiles, frequencies_),
        b_(a_.end(), row(rounds_.columns), rounds_.tiles, frequencies_),
        weights_(b_.end(), row(rounds_.columns), from_.channels, frequencies_) {
    const int taps = c.kernel * c.kernel;
    for (int q = 0; q < taps; ++q) {
      const int tap = gradient() ? taps - 1 - q : q;
      places_.push_back(std::uint32_t(tap * lanes()));
    }
  }

  std::size_t scratch_floats() const override {
    return std::size_t(kind_.side) * kind_.side * lanes_;
  }
  std::size_t shared_floats(int) const override { return weights_.end(); }
  /// Round by round: the transforms there, the products; with the next round's the way back.
  int phases(int) const override { return int(2 * rounds_.count + 1); }

  void run(const Operands& operands, int phase, Share share) const override {
    const std::size_t number = std::size_t(phase) / 2;
    const Round round = this->round(number);
    if (phase % 2 == 1) return multiply(operands, round, share);
    const bool begins = number == 0, ends = number == rounds_.count;
    const bool new_columns = rounds_.by_columns || begins;
    const bool new_tiles = !rounds_.by_columns || begins;
    if (weight_gradient()) {
      if (!begins && (rounds_.by_columns || ends))
        finish_weights(operands, this->round(number - 1), share);
      if (ends) return bias_gradient(c_, operands, share);
      if (new_tiles) spread_inputs(operands.x, operands, round, share);
      spread_gradients(operands, round, share);
      return;
    }
    if (!begins) finish_images(operands, this->round(number - 1), share);
    if (ends) return;
    if (new_columns) spread_weights(operands, round, share);
    if (new_tiles) spread_inputs(operands.source, operands, round, share);
  }

 private:
  /// What it takes: tiles and columns from `tile` and `column` on.
  struct Round {
    std::size_t tile = 0, tiles = 0, column = 0, columns = 0;
    bool first = true;  ///< of its columns
  };
  Round round(std::size_t number) const {
    Round r{.tiles = tiles_, .columns = std::size_t(to_.channels)};
    if (rounds_.by_columns) {
      r.column = std::min(r.columns, number * rounds_.columns);
      r.columns = std::min(rounds_.columns, r.columns - r.column);
    } else {
      r.tile = std::min(r.tiles, number * rounds_.tiles);
      r.tiles = std::min(rounds_.tiles, r.tiles - r.tile);
      r.first = number == 0;
    }
    return r;
  }

  bool gradient() const { return c_.pass == Pass::kDataGradient; }
  bool weight_gradient() const { return c_.pass == Pass::kWeightGradient; }
  std::size_t parts() const { return is_fft(kind_) ? 2 : 1; }
  /// Floats of a frequency of so many channels, in whole vectors.
  std::size_t row(std::size_t channels) const { return parts() * round_up(channels, lanes()); }
  /// A square of its own, [side][side][lanes].
  Window window(int side) const {
    return {.row = side * lanes_,
            .column = lanes_,
            .bottom = side,
            .right = side,
            .channels = int(lanes_)};
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

  void spread_inputs(const float* image, const Operands& operands, const Round& r,
                     Share share) const {
    each_vector(r.tiles, from_.channels, share, [&](std::size_t index, std::size_t channel) {
      spread_image(Side::kInput, image,
                   window(r.tile + index, from_, channel, c_.kernel / 2, kind_.side),
                   operands.scratch, a_.at(operands, index, channel * parts()));
    });
  }
  void spread_gradients(const Operands& operands, const Round& r, Share share) const {
    each_vector(r.tiles, r.columns, share, [&](std::size_t index, std::size_t channel) {
      spread_image(Side::kGradient, operands.source,
                   window(r.tile + index, to_, r.column + channel, 0, tile_), operands.scratch,
                   b_.at(operands, index, channel * parts()));
    });
  }
  void spread_image(Side side, const float* image, Window w, float* scratch,
                    const Spectrum& to) const {
    const float* corner = image + w.offset;
    if (w.channels < int(lanes_)) corner = fill_lanes(corner, w, scratch);
    HWY_DYNAMIC_DISPATCH(spread)(kind_.transform, side, corner, w, to);
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

  void spread_weights(const Operands& operands, const Round& r, Share share) const {
    float* const square = operands.scratch;
    const std::size_t taps = places_.size(), in = c_.input.channels;
    each_vector(from_.channels, r.columns, share, [&](std::size_t from, std::size_t channel) {
      const std::size_t to = r.column + channel, rows = std::min(lanes_, r.columns - channel);
      if (gradient()) {
        to_lanes(operands.weights + (from * in + to) * taps, taps, rows, places_, square);
      } else {
        to_lanes(operands.weights + (to * in + from) * taps, in * taps, rows, places_, square);
      }
      HWY_DYNAMIC_DISPATCH(spread)
      (kind_.transform, Side::kWeights, square, window(c_.kernel),
       weights_.at(operands, from, channel * parts()));
    });
  }

  void multiply(const Operands& operands, const Round& r, Share share) const {
    const int channels = from_.channels, tiles = int(r.tiles);
    Products p{.complex = is_fft(kind_),
               .transposed = weight_gradient(),
               .a_pitch = a_.row,
               .b_row = b_.row,  // the weights', too
               .c_row = b_.row,
               .rows = tiles,
               .depth = channels,
               .vectors = int(round_up(r.columns, lanes_) / lanes_)};
    if (weight_gradient()) {  // sums over tiles
      std::swap(p.rows, p.depth);
      p.accumulate = !r.first;
    }
    const auto [begin, end] = share.of(std::size_t(frequencies_));
    for (std::size_t f = begin; f < end; ++f) {
      float *const image = b_.of(operands, f), *const kernel = weights_.of(operands, f);
      p.a = a_.of(operands, f);
      p.b = weight_gradient() ? image : kernel;
      p.c = weight_gradient() ? kernel : image;
      products(p);
    }
  }

  void finish_images(const Operands& operands, const Round& r, Share share) const {
    each_vector(r.tiles, r.columns, share, [&](std::size_t index, std::size_t channel) {
      const std::size_t to = r.column + channel;
      const Window w = window(r.tile + index, to_, to, 0, tile_);
      const Finish finish{.bias = operands.bias ? operands.bias + to : nullptr,
                          .activation = c_.activation,
                          .mask = operands.mask ? operands.mask + w.offset : nullptr,
                          .image = operands.made + w.offset};
      HWY_DYNAMIC_DISPATCH(gather)
      (kind_.transform, Side::kOutput, b_.at(operands, index, channel * parts()), finish, w);
    });
  }

  void finish_weights(const Operands& operands, const Round& r, Share share) const {
    const std::size_t taps = places_.size(), in = c_.input.channels;
    each_vector(in, r.columns, share, [&](std::size_t from, std::size_t channel) {
      HWY_DYNAMIC_DISPATCH(gather)
      (kind_.transform, Side::kWeights, weights_.at(operands, from, channel * parts()),
       Finish{.image = operands.scratch}, window(c_.kernel));
      from_lanes(operands.scratch, places_,
                 operands.made + ((r.column + channel) * in + from) * taps, in * taps,
                 std::min(lanes_, r.columns - channel), c_.accumulate);
    });
  }

  const std::size_t lanes_ = lanes();
  const Convolution c_;
  const Kind kind_;
  const int tile_;  ///< outputs of a square
  const int tiles_across_;
  const std::size_t tiles_;
  const std::size_t frequencies_;
  const Layout from_, to_;  ///< images: of the products' depth, and of their columns
  const Rounds rounds_;
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
