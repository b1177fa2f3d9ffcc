// Convolutions of stride 1 as products in a transformed domain, square by square: an FFT of
// overlapping squares, or Winograd. One product per frequency instead of kernel^2 per pixel.
#include <algorithm>
#include <utility>

#include "capture/program/kernels/internal.h"
#include "capture/program/kernels/transform_numbers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/transformed.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels::HWY_NAMESPACE {

template <class T>
constexpr Functions kFunctions = {T::spread, T::gather};
/// In the order of the enumerators.
Functions functions_of(Transform transform) {
#if HWY_TARGET == HWY_SCALAR
  return {};  // without vectors there are direct sums alone
#else
  constexpr Functions all[] = {kFunctions<Fourier<12> >,    kFunctions<Fourier<20> >,
                               kFunctions<Fourier<30> >,    kFunctions<Winograd<4, 3> >,
                               kFunctions<Winograd<6, 3> >, kFunctions<Winograd<4, 5> >};
  return all[int(transform)];
#endif
}

}  // namespace millrace::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(functions_of);

namespace {

struct Kind {
  const char* name;
  Transform transform;
  int side, kernel;  ///< kernel 0: any that leaves room for outputs
  bool accurate;
  /// Cost per square of `lanes` channels, in vector multiply-adds: images to and from frequencies,
  /// weights to and from. Between measurements with 8 and 16 lanes on a Sapphire Rapids.
  double image, output, weights, weight_gradient;
};
constexpr Kind kKinds[] = {
    {"fft12", Transform::kFft12, 12, 0, true, 2100, 1900, 1500, 1400},
    {"fft20", Transform::kFft20, 20, 0, true, 8000, 7900, 5000, 5000},
    {"fft30", Transform::kFft30, 30, 0, true, 22000, 20000, 20000, 25000},
    {"winograd4x3", Transform::kWinograd43, 6, 3, true, 370, 330, 290, 290},
    {"winograd6x3", Transform::kWinograd63, 8, 3, false, 690, 500, 330, 230},
    {"winograd4x5", Transform::kWinograd45, 8, 5, false, 690, 370, 350, 300},
};
bool is_fft(const Kind& kind) {
  return kind.kernel == 0;
}

bool can_do(const Kind& kind, const Convolution& c) {
  if (c.stride != 1 || c.kernel == 1 || !has_vectors()) return false;
  return is_fft(kind) ? 2 * c.kernel <= kind.side + 1 : kind.kernel == c.kernel;
}

/// Whether products go from the output's channels to the input's.
bool to_input(const Convolution& c) {
  return c.pass == Pass::kDataGradient || c.pass == Pass::kGradients;
}

double vectors(int channels) {
  return double(vectors_of(std::size_t(channels)));
}

/// How a kind of transform does a convolution. Products come in rounds of some tiles, or some
/// columns of the weights' spectra, so that a round's data stays in the core's own cache.
struct Plan {
  Kind kind;
  Layout from, to;  ///< images: of the products' depth, and of their columns
  int tile = 0;     ///< outputs per square, along each side
  int tiles_across = 0;
  std::size_t tiles = 0, frequencies = 0;
  bool by_columns = false;
  std::size_t round_tiles = 0, round_columns = 0;  ///< of each but the last; columns: channels
  std::size_t moved = 0;                           ///< floats that leave the cache and come back

  Plan(const Kind& kind, const Convolution& c)
      : kind(kind), from(c.input), to(c.output), tile(kind.side - c.kernel + 1) {
    tiles_across = divided_up(to.width, tile);
    tiles = std::size_t(divided_up(to.height, tile)) * tiles_across;
    if (to_input(c)) std::swap(from, to);
    const int half = kind.side / 2;
    frequencies =
        std::size_t(is_fft(kind) ? (half - 1) * kind.side + 2 * (half + 1) : kind.side * kind.side);
    divide();
  }
  std::size_t parts() const { return is_fft(kind) ? 2 : 1; }
  /// Floats of a frequency of that many channels, in whole vectors.
  std::size_t row(std::size_t channels) const { return parts() * round_up(channels, lanes()); }

  // Costs in vector multiply-adds.
  double inputs_cost() const { return double(tiles) * vectors(from.channels) * kind.image; }
  double weights_cost() const { return from.channels * vectors(to.channels) * kind.weights; }

 private:
  void divide() {
    constexpr std::size_t kSome = 128 << 10, kCached = 256 << 10;  // floats
    const std::size_t a = frequencies * row(from.channels), b = frequencies * row(to.channels);
    const std::size_t column = frequencies * parts() * from.channels;
    round_tiles = std::max<std::size_t>(12, kSome / (a + b));
    round_columns = std::max<std::size_t>(1, kSome / (column * lanes())) * lanes();
    const std::size_t columns = round_up(std::size_t(to.channels), lanes());
    const std::size_t of_tiles = divided_up(tiles, round_tiles);
    const std::size_t of_columns = divided_up(columns, round_columns);
    // A side needed in every round is written once and read each time.
    const auto moves = [](std::size_t floats, std::size_t rounds) {
      return floats > kCached ? floats * (1 + rounds) : 0;
    };
    const std::size_t images = moves(tiles * a, of_columns);
    const std::size_t weights = moves(columns * column, of_tiles);
    by_columns = images < weights;
    moved = by_columns ? images : weights;
    round_tiles =
        by_columns ? tiles : round_up(divided_up(tiles, of_tiles), 4);  // rows of a product
    round_columns = by_columns ? std::min(columns, round_columns) : columns;
  }
};

/// Cost of the convolution by `kind`, in vector multiply-adds.
double cost_of(const Kind& kind, const Convolution& c) {
  const Plan plan(kind, c);
  const double tiles = double(plan.tiles), taps = double(c.kernel) * c.kernel;
  const double of_weights = plan.from.channels * vectors(plan.to.channels);
  const double product = double(plan.frequencies) * of_weights * (is_fft(kind) ? 4.6 : 1.3);
  const double inputs = plan.inputs_cost();
  const double outputs = tiles * vectors(plan.to.channels), moved = 0.5 * double(plan.moved);
  if (c.pass == Pass::kWeightGradient) {  // a product's sums go to memory
    return inputs + outputs * kind.image + (tiles + 2) * product +
           of_weights * (kind.weight_gradient + 15 * taps) + moved;
  }
  return inputs + outputs * kind.output + tiles * product + plan.weights_cost() +
         of_weights * 10 * taps + moved;
}

/// Cost of the convolution by the direct kernels, in vector multiply-adds.
double direct_cost(const Convolution& c) {
  const bool gradient = c.pass == Pass::kDataGradient;
  const int from = (gradient ? c.output : c.input).channels;
  const int to = (gradient ? c.input : c.output).channels;
  const double pixels = double(c.output.height) * c.output.width, side = c.kernel;
  const double wide = pixels * side * side * from * vectors(to);
  if (c.pass == Pass::kWeightGradient)
    return 1.25 * std::min(wide, pixels * side * side * to * vectors(from));
  const double narrow = pixels * to * (1.5 * side * vectors(c.kernel * from) + 4);
  return std::min(1.17 * wide, narrow);
}

/// Spectra of one side of the products, [frequency][count][vectors of channels]: real, then
/// imaginary parts per vector.
struct Spectra {
  const std::size_t begin;
  const std::size_t row;    ///< stride of `count` in floats
  const std::size_t plane;  ///< stride of frequencies in floats
  const std::size_t floats;

  /// \param begin their offset in a thread's memory.
  Spectra(std::size_t begin, std::size_t row, std::size_t count, std::size_t frequencies)
      : begin(begin),
        row(row),
        // Not a power of two, or all planes would compete for one cache set.
        plane(round_up(count * row, 16) + 16),
        floats(plane * frequencies) {}
  std::size_t end() const { return begin + floats; }
  float* of(const Operands& operands, std::size_t frequency) const {
    return operands.scratch + begin + frequency * plane;
  }
  Spectrum at(const Operands& operands, std::size_t index, std::size_t offset) const {
    return {of(operands, 0) + index * row + offset, plane};
  }
};

/// Threads share no spectra, since reading them from another core's cache is slow: each computes
/// those that its part needs, some of them several times.
///
/// Both gradients at once transform dy once: the weights' gradient sums products of the same
/// overlapping squares of dy with tiles of x. Alone, it takes squares of x and tiles of dy.
class TransformedKernel final : public Kernel {
 public:
  TransformedKernel(const Convolution& c, const Kind& kind)
      : c_(c),
        plan_(kind, c),
        a_(0, plan_.row(plan_.from.channels), plan_.round_tiles, plan_.frequencies),
        b_(a_.end(), plan_.row(plan_.round_columns), plan_.round_tiles, plan_.frequencies),
        weights_(b_.end(), b_.row, plan_.from.channels, plan_.frequencies),
        sums_(makes_image() ? weights_.end() : weights_.begin, b_.row, plan_.from.channels,
              plan_.frequencies) {
    const int taps = c.kernel * c.kernel;
    for (int q = 0; q < taps; ++q) {
      const int tap = to_input(c) ? taps - 1 - q : q;
      places_.push_back(std::uint32_t(tap * lanes()));
    }
  }

  std::size_t scratch_floats() const override { return square_begin() + places_.size() * lanes_; }

  void run(const Operands& operands, int, Share share) const override {
    const Part part = part_of(share);
    each_round(part, [&](const Part& r, bool first) {
      if (makes_image() && (first || plan_.by_columns)) spread_weights(operands, r);
      if (first || !plan_.by_columns) spread_inputs(operands, r);
      if (makes_image()) {
        multiply(operands, r);
        finish_image(operands, r);
      }
      if (makes_weights()) {
        spread_gradients(operands, r);
        sum_tiles(operands, r, !first && !plan_.by_columns);
        if (plan_.by_columns) finish_weights(operands, r);
      }
    });
    if (!makes_weights()) return;
    if (!plan_.by_columns) finish_weights(operands, part);
    bias_gradient(c_, operands, share);
  }

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
    std::size_t count() const { return end - begin; }
    Range of(Share share, std::size_t unit = 1) const {
      const auto [first, last] = share.of(count(), unit);
      return {begin + first, begin + last};
    }
  };
  /// A part of the tiles, and of the channels on both sides of the products: those transformed, and
  /// those of the results.
  struct Part {
    Range tiles, rows, columns, made_tiles, made_rows;
    Share of_tiles;  ///< in each round, of the tiles of the results
  };

  Part part_of(Share share) const {
    Part part{.tiles = {0, plan_.tiles},
              .rows = {0, std::size_t(plan_.from.channels)},
              .columns = {0, std::size_t(plan_.to.channels)}};
    part.made_rows = part.rows;
    const bool even = vectors_of(part.columns.end) % std::size_t(share.count) == 0;
    if (even && (makes_weights() || plan_.weights_cost() >= plan_.inputs_cost())) {
      part.columns = part.columns.of(share, lanes_);
    } else if (!makes_weights()) {
      part.tiles = part.tiles.of(share);
    } else {
      part.made_rows = part.rows.of(share, 4);
      if (makes_image()) {
        part.of_tiles = share;
      } else {
        part.rows = part.made_rows;
      }
    }
    return part;
  }
  /// Calls work(part of the round, whether it is the first).
  template <class Work>
  void each_round(const Part& part, const Work& work) const {
    if (!part.tiles.count() || !part.rows.count() || !part.columns.count()) return;
    Range Part::*const divided = plan_.by_columns ? &Part::columns : &Part::tiles;
    const auto [begin, end] = part.*divided;
    const std::size_t step = plan_.by_columns ? plan_.round_columns : plan_.round_tiles;
    for (std::size_t i = begin; i < end; i += step) {
      Part round = part;
      round.*divided = Range{i, std::min(i + step, end)};
      round.made_tiles = round.tiles.of(part.of_tiles);
      work(round, i == begin);
    }
  }

  bool makes_image() const { return c_.pass != Pass::kWeightGradient; }
  bool makes_weights() const { return kernels::makes_weights(c_.pass); }
  /// A square of weights, [kernel][kernel][lanes].
  Window square() const {
    return {.row = c_.kernel * lanes_,
            .column = lanes_,
            .bottom = c_.kernel,
            .right = c_.kernel,
            .channels = int(lanes_)};
  }
  std::size_t square_begin() const { return makes_weights() ? sums_.end() : weights_.end(); }
  float* square_of(const Operands& operands) const { return operands.scratch + square_begin(); }
  /// The offset of a square of weights for `lanes` columns, and floats from one column to the next.
  std::pair<std::size_t, std::size_t> place_of(std::size_t from, std::size_t to) const {
    const std::size_t taps = places_.size(), in = c_.input.channels;
    if (to_input(c_)) return {(from * in + to) * taps, taps};
    return {(to * in + from) * taps, in * taps};
  }

  /// The image under a tile's square, which begins `border` pixels up and left of the tile and has
  /// at most `extent` rows and columns in the image.
  Window window(std::size_t tile, const Layout& image, std::size_t channel, int border,
                int extent) const {
    const int y = int(tile) / plan_.tiles_across * plan_.tile - border;
    const int x = int(tile) % plan_.tiles_across * plan_.tile - border;
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
  /// Calls work(i, first channel of a vector) for all vectors that hold a channel of the range.
  template <class Work>
  void each_vector(Range range, Range channels, const Work& work) const {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      for (std::size_t c = channels.begin / lanes_ * lanes_; c < channels.end; c += lanes_)
        work(i, c);
    }
  }

  void spread_inputs(const Operands& operands, const Part& r) const {
    const float* const image = makes_image() ? operands.source : operands.x;
    each_vector(r.tiles, r.rows, [&](std::size_t tile, std::size_t channel) {
      const Window w = window(tile, plan_.from, channel, c_.kernel / 2, plan_.kind.side);
      functions_.spread(Side::kInput, image + w.offset, w,
                        a_.at(operands, tile - r.tiles.begin, channel * plan_.parts()));
    });
  }
  void spread_gradients(const Operands& operands, const Part& r) const {
    const float* const image = makes_image() ? operands.x : operands.source;
    each_vector(r.tiles, r.columns, [&](std::size_t tile, std::size_t channel) {
      const Window w = window(tile, plan_.to, channel, 0, plan_.tile);
      functions_.spread(Side::kGradient, image + w.offset, w,
                        column(b_, operands, tile - r.tiles.begin, channel, r));
    });
  }
  Spectrum column(const Spectra& spectra, const Operands& operands, std::size_t index,
                  std::size_t channel, const Part& r) const {
    return spectra.at(operands, index, (channel - r.columns.begin) * plan_.parts());
  }

  void spread_weights(const Operands& operands, const Part& r) const {
    float* const packed = square_of(operands);
    each_vector(r.rows, r.columns, [&](std::size_t from, std::size_t to) {
      const auto [begin, stride] = place_of(from, to);
      to_lanes(operands.weights + begin, stride, std::min(lanes_, r.columns.end - to), places_,
               packed);
      functions_.spread(Side::kWeights, packed, square(), column(weights_, operands, from, to, r));
    });
  }

  Products products_of(const Part& r) const {
    return {.complex = is_fft(plan_.kind),
            .a_pitch = a_.row,
            .b_row = b_.row,  // the weights', too
            .c_row = b_.row,
            .vectors = int(vectors_of(r.columns.count()))};
  }
  void multiply(const Operands& operands, const Part& r) const {
    Products p = products_of(r);
    p.rows = int(r.made_tiles.count());
    p.depth = plan_.from.channels;
    const std::size_t first = r.made_tiles.begin - r.tiles.begin;
    for (std::size_t f = 0; f < plan_.frequencies; ++f) {
      p.a = a_.of(operands, f) + first * p.a_pitch;
      p.b = weights_.of(operands, f);
      p.c = b_.of(operands, f) + first * p.c_row;
      products(p);
    }
  }
  void sum_tiles(const Operands& operands, const Part& r, bool accumulate) const {
    Products p = products_of(r);
    p.transposed = true;
    p.depth = int(r.tiles.count());
    p.accumulate = accumulate;
    for (std::size_t f = 0; f < plan_.frequencies; ++f) {
      p.b = b_.of(operands, f);
      // Rows within one vector, or else whole vectors.
      for (std::size_t row = r.made_rows.begin, end; row < r.made_rows.end; row = end) {
        const std::size_t lane = row % lanes_;
        end = lane == 0 ? r.made_rows.end : std::min(r.made_rows.end, row - lane + lanes_);
        p.a = a_.of(operands, f) + (row - lane) * plan_.parts() + lane;
        p.c = sums_.of(operands, f) + row * p.c_row;
        p.rows = int(end - row);
        products(p);
      }
    }
  }

  void finish_image(const Operands& operands, const Part& r) const {
    each_vector(r.made_tiles, r.columns, [&](std::size_t tile, std::size_t to) {
      const Window w = window(tile, plan_.to, to, 0, plan_.tile);
      functions_.gather(Side::kOutput, column(b_, operands, tile - r.tiles.begin, to, r),
                        finish_at(c_, operands, w.offset, to), w);
    });
  }

  void finish_weights(const Operands& operands, const Part& r) const {
    float* const packed = square_of(operands);
    float* const made = makes_image() ? operands.weight_gradient : operands.made;
    each_vector(r.made_rows, r.columns, [&](std::size_t from, std::size_t to) {
      const auto [begin, stride] = place_of(from, to);
      functions_.gather(Side::kWeights, column(sums_, operands, from, to, r), Finish{.to = packed},
                        square());
      from_lanes(packed, places_, made + begin, stride, std::min(lanes_, r.columns.end - to),
                 c_.accumulate);
    });
  }

  const std::size_t lanes_ = lanes();
  const Convolution c_;
  const Plan plan_;
  const Functions functions_ = HWY_DYNAMIC_DISPATCH(functions_of)(plan_.kind.transform);
  const Spectra a_, b_, weights_, sums_;
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
  constexpr double kWorthIt = 0.9;  // margin: small ones are estimated less well
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
