// Forward and data gradient: correlations of the source with the weights, flipped for the gradient.
#include <algorithm>

#include "capture/program/kernels/own.h"
#include "capture/program/kernels/simd.h"

namespace millrace::kernels {
namespace {

constexpr std::size_t kAhead = 4;
constexpr std::size_t kBandFloats = 32 << 10;
constexpr const char* kNarrow = "narrow";

bool forward(const Convolution& c) {
  return c.pass == Pass::kForward;
}
const Layout& source_of(const Convolution& c) {
  return forward(c) ? c.input : c.output;
}
const Layout& destination_of(const Convolution& c) {
  return forward(c) ? c.output : c.input;
}

/// The data gradient of a strided convolution falls into stride x stride pieces: destination
/// pixels of one remainder by the stride meet one part of the taps. Else there is one piece.
struct Piece {
  Correlation correlation;  ///< without addresses
  int left = 0;             ///< source column of the first tap
  std::size_t destination = 0, weights = 0;
};

/// Along one axis of the data gradient: destination index stride * i + phase takes the kernel's
/// indices first + stride * m, m < count, from source index i + offset - m.
struct Phase {
  Phase(int phase, int kernel, int stride, int size)
      : first((phase + kernel / 2) % stride),
        count((kernel - first + stride - 1) / stride),
        offset((phase + kernel / 2 - first) / stride),
        size((size - phase + stride - 1) / stride) {}
  int first, count, offset, size;
};

class OwnCorrelation final : public Kernel {
 public:
  OwnCorrelation(const Convolution& c, const std::string& name) : convolution_(c), name_(name) {
    const Layout& from = source_of(c);
    const std::size_t to = destination_of(c).channels;
    padded_ = {c.kernel / 2, from.width, from.channels};
    row_ = copies() ? padded_.row() : from.row();
    // So many output rows at a time that the copy of what they read stays in the cache.
    band_ = std::max(1, int(kBandFloats / row_) / 6) * 6;
    if (name == kNarrow) {
      packed_floats_ = to * c.kernel * round_up(std::size_t(c.kernel) * from.channels, lanes());
    } else {
      block_ = std::size_t(c.kernel) * c.kernel * from.channels * lanes();
      packed_floats_ = round_up(to, lanes()) / lanes() * block_;
    }
    forward(c) ? add_forward() : add_gradient();
    for (const Piece& piece : pieces_) {
      const Correlation& made = piece.correlation;
      rows_ = std::max(rows_, made.height);
      top_ = std::min(top_, made.top);
      bottom_ = std::max(bottom_, made.top + made.kernel_rows);
    }
  }

  std::string name() const override { return name_; }
  std::size_t packed_floats() const override { return packed_floats_; }
  std::size_t scratch_floats() const override {
    if (!copies()) return 0;
    const int reach = (band_ - 1) * row_step() + bottom_ - top_;
    return row_ * std::min(source_of(convolution_).height, reach);
  }

  void pack(const float* weights, float* packed, Share share) const override {
    if (name_ == kNarrow) return pack_narrow(weights, packed);
    // PyTorch's order is [output][input][taps]. The lanes are output channels in the forward pass,
    // where the other two indices are one, and input channels in the gradient.
    const std::size_t in = convolution_.input.channels, out = convolution_.output.channels;
    const std::size_t taps = std::size_t(convolution_.kernel) * convolution_.kernel;
    const std::size_t channels = forward(convolution_) ? out : in;
    const auto [begin, end] = part_of(share).channels.of(channels, lanes());
    packed += begin / lanes() * block_;
    for (std::size_t c = begin; c < end; c += lanes(), packed += block_) {
      const std::size_t rows = std::min(lanes(), channels - c);
      if (forward(convolution_)) {
        to_lanes(weights + c * in * taps, in * taps, rows, places_, packed);
        continue;
      }
      for (std::size_t o = 0; o < out; ++o) {
        const float* from = weights + (o * in + c) * taps;
        // The next rows lie far apart, where the processor does not look ahead by itself.
        const float* ahead = from + kAhead * in * taps;
        for (std::size_t i = 0; o + kAhead < out && i < rows * taps; i += 16)
          __builtin_prefetch(ahead + i);
        to_lanes(from, taps, rows, places_, packed + o * lanes());
      }
    }
  }

  void run(const Operands& operands, int, Share share) const override {
    const Layout& from = source_of(convolution_);
    const float* source = forward(convolution_) ? operands.x : operands.dy;
    const Part part = part_of(share);
    const auto [rows_begin, rows_end] = part.rows.of(std::size_t(rows_));
    const int begin = int(rows_begin), rows = int(rows_end);
    if (!copies()) return run_rows(operands, source, 0, begin, rows, part.channels);
    for (int y = begin; y < rows; y += band_) {
      const int end = std::min(y + band_, rows);
      const int first = std::max(0, y * row_step() + top_);
      const int last = std::min(from.height, (end - 1) * row_step() + bottom_);
      run_rows(operands, padded_.copy(source, from, first, last, operands.scratch), first, y, end,
               part.channels);
    }
  }

 private:
  bool copies() const { return convolution_.kernel > 1; }
  int row_step() const { return forward(convolution_) ? convolution_.stride : 1; }

  /// What a thread does of the output: some rows of some blocks of channels.
  struct Part {
    Share rows, channels;
  };

  /// So that the slowest thread is done soonest: each packs the weights that it uses, which takes
  /// about as long as eight pixels.
  Part part_of(Share share) const {
    constexpr std::size_t kPacking = 8;
    const std::size_t channels = destination_of(convolution_).channels;
    const std::size_t blocks = name_ == kNarrow ? 1 : round_up(channels, lanes()) / lanes();
    const std::size_t width = destination_of(convolution_).width;
    std::size_t best = 0;
    int across = 1;  // threads that share the channels
    for (int n = 1; n <= share.count; ++n) {
      if (share.count % n != 0) continue;
      const std::size_t above = std::size_t(share.count / n);
      const std::size_t rows = (std::size_t(rows_) + above - 1) / above;
      const std::size_t cost =
          (blocks + std::size_t(n) - 1) / std::size_t(n) * (rows * width + kPacking);
      if (n > 1 && cost >= best) continue;
      best = cost;
      across = n;
    }
    return {.rows = {share.index / across, share.count / across},
            .channels = {share.index % across, across}};
  }

  /// Rows [begin, end) of each piece. `source`: pixel (source_row, 0).
  void run_rows(const Operands& operands, const float* source, int source_row, int begin, int end,
                Share share) const {
    const Convolution& c = convolution_;
    const auto [channel, channels_end] = share.of(std::size_t(destination_of(c).channels), lanes());
    if (channel >= channels_end) return;
    for (const Piece& piece : pieces_) {
      Correlation made = piece.correlation;
      made.channels = int(channels_end - channel);
      made.height = std::min(end, made.height) - begin;
      if (made.height <= 0) continue;
      made.top += begin * made.row_step;
      made.source = source + (made.top - source_row) * std::ptrdiff_t(row_) +
                    piece.left * std::ptrdiff_t(padded_.channels);
      made.destination = (forward(c) ? operands.y : operands.dx) + piece.destination;
      made.destination += begin * made.step_y + channel;
      made.mask =
          c.masked ? operands.mask + piece.destination + begin * made.step_y + channel : nullptr;
      made.weights = operands.packed + piece.weights + channel / lanes() * block_;
      made.bias = forward(c) && operands.bias ? operands.bias + channel : nullptr;
      name_ == kNarrow ? correlate_narrow(made) : correlate_wide(made);
    }
  }

  /// A piece whose part of the kernel is `rows` x `columns`, with what all have alike.
  Piece piece_of(int rows, int columns) const {
    Piece piece;
    Correlation& c = piece.correlation;
    c.kernel_rows = rows;
    c.taps = columns * padded_.channels;
    c.source_row = row_;
    c.source_height = source_of(convolution_).height;
    c.row_step = row_step();
    c.channels = destination_of(convolution_).channels;
    c.weights_block = block_;
    return piece;
  }

  void add_forward() {
    const Convolution& c = convolution_;
    Piece piece = piece_of(c.kernel, c.kernel);
    Correlation& made = piece.correlation;
    made.height = c.output.height;
    made.width = c.output.width;
    made.top = -(c.kernel / 2);
    made.pixel_step = std::size_t(c.stride) * padded_.channels;
    made.step_y = c.output.row();
    made.step_x = c.output.channels;
    made.activation = c.activation;
    piece.left = -(c.kernel / 2);
    pieces_.push_back(piece);
    const int taps = c.kernel * c.kernel;
    for (int q = 0; q < taps * c.input.channels; ++q)
      places_.push_back((q % taps * c.input.channels + q / taps) * lanes());
  }

  void add_gradient() {
    const Convolution& c = convolution_;
    places_.resize(c.kernel * c.kernel);
    std::size_t weights = 0;
    for (int y = 0; y < c.stride; ++y) {
      for (int x = 0; x < c.stride; ++x) {
        const Phase rows(y, c.kernel, c.stride, c.input.height);
        const Phase columns(x, c.kernel, c.stride, c.input.width);
        for (int i = 0; i < rows.count; ++i) {
          for (int j = 0; j < columns.count; ++j) {
            const int tap = (rows.first + c.stride * i) * c.kernel + columns.first + c.stride * j;
            const int place = (rows.count - 1 - i) * columns.count + columns.count - 1 - j;
            places_[tap] = weights + place * padded_.channels * lanes();
          }
        }
        add_gradient_piece(y, rows, x, columns, weights);
        weights += rows.count * columns.count * padded_.channels * lanes();
      }
    }
  }

  void add_gradient_piece(int y, const Phase& rows, int x, const Phase& columns,
                          std::size_t weights) {
    const Convolution& c = convolution_;
    Piece piece = piece_of(rows.count, columns.count);
    Correlation& made = piece.correlation;
    made.height = rows.size;
    made.width = columns.size;
    made.top = rows.offset - rows.count + 1;
    made.pixel_step = padded_.channels;
    made.step_y = c.stride * c.input.row();
    made.step_x = std::size_t(c.stride) * c.input.channels;
    piece.left = columns.offset - columns.count + 1;
    piece.destination = y * c.input.row() + x * c.input.channels;
    piece.weights = weights;
    pieces_.push_back(piece);
  }

  void pack_narrow(const float* weights, float* packed) const {
    const Convolution& c = convolution_;
    const int to = destination_of(c).channels, from = padded_.channels, taps = c.kernel * c.kernel;
    const std::size_t row = round_up(std::size_t(c.kernel) * from, lanes());
    std::fill(packed, packed + packed_floats_, 0.0f);
    for (int d = 0; d < to; ++d) {
      for (int s = 0; s < from; ++s) {
        const float* kernel = weights + (forward(c) ? d * from + s : s * to + d) * taps;
        for (int tap = 0; tap < taps; ++tap) {
          const int ky = tap / c.kernel, kx = tap % c.kernel;
          packed[(std::size_t(d) * c.kernel + ky) * row + kx * from + s] =
              kernel[forward(c) ? tap : taps - 1 - tap];
        }
      }
    }
  }

  const Convolution convolution_;
  const std::string name_;
  PaddedRows padded_;
  std::size_t row_ = 0;       ///< floats of a source row as correlations read it
  int band_ = 0, rows_ = 0;   ///< output rows of a piece: at a time, in all
  int top_ = 0, bottom_ = 0;  ///< source rows that output row 0 reaches
  std::size_t block_ = 0;     ///< packed weights of `lanes` channels
  std::size_t packed_floats_ = 0;
  std::vector<std::uint32_t> places_;  ///< for to_lanes
  std::vector<Piece> pieces_;
};

/// For fewer output channels than lanes. In multiply-adds of a vector: wide has one a tap, narrow
/// one a channel and vector of taps, and more for each sum over lanes and each packed weight. The
/// factors were fitted to both kernels' times over 1,558 shapes (1 to 64 channels, k1 to k15, 4x4
/// to 128x96) on an EPYC of 2024: what the rule takes is 3 % slower than the faster one in the mean
/// with 16 lanes, 1 % with 8.
bool narrow_is_faster(const Convolution& c) {
  const double to = destination_of(c).channels, from = source_of(c).channels;
  const double pixels = double(destination_of(c).height) * destination_of(c).width;
  const std::size_t vectors = c.kernel * round_up(std::size_t(c.kernel * from), lanes()) / lanes();
  const double weights = from * to * c.kernel * c.kernel;
  const double narrow = pixels * to * (1.5 * double(vectors) + 4) + 8 * weights;
  const double wide = pixels * (from * c.kernel * c.kernel + double(lanes()) - 4);
  return narrow < wide;
}

}  // namespace

std::vector<std::string> own_correlations(const Convolution& c) {
  const std::size_t to = destination_of(c).channels;
  if (rows_are_faster(c)) return {kRows, kWide};
  if (to >= lanes() || (!forward(c) && c.stride > 1)) return {kWide};
  return narrow_is_faster(c) ? std::vector<std::string>{kNarrow, kWide}
                             : std::vector<std::string>{kWide, kNarrow};
}

std::unique_ptr<Kernel> own_correlation(const Convolution& convolution, const std::string& name) {
  if (name == kRows) return own_rows(convolution);
  return std::make_unique<OwnCorrelation>(convolution, name);
}

}  // namespace millrace::kernels
