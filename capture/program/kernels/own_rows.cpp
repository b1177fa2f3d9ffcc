// Forward and data gradient where there are few output pixels and many weights: a product of the
// weights' matrix with a column a pixel.
#include <algorithm>
#include <tuple>

#include "capture/program/kernels/own.h"
#include "capture/program/kernels/simd.h"

namespace millrace::kernels {
namespace {

class OwnRows final : public Kernel {
 public:
  explicit OwnRows(const Convolution& c)
      : convolution_(c),
        taps_(std::size_t(c.kernel) * c.kernel),
        row_(taps_ * c.input.channels),
        pixels_(c.output.height * c.output.width) {}

  std::string name() const override { return kRows; }
  std::size_t packed_floats() const override { return 0; }
  std::size_t scratch_floats() const override {
    return pixels() * (row_ + std::size_t(convolution_.output.channels)) +
           convolution_.input.channels;
  }
  void pack(const float*, float*, Share) const override {}

  void run(const Operands& operands, int, Share share) const override {
    Rows r{.rows = operands.packed,
           .row = row_,
           .channels = std::size_t(convolution_.output.channels),
           .columns = operands.scratch,
           .values = operands.scratch + pixels() * row_,
           .pixels = pixels_};
    convolution_.pass == Pass::kForward ? forward(operands, r, share)
                                        : gradient(operands, r, share);
  }

 private:
  std::size_t pixels() const { return std::size_t(pixels_); }

  /// Calls with (pixel of the output, tap, row and column of the input) where a tap meets a pixel.
  template <class Meets>
  void each_tap(const Meets& meets) const {
    const Convolution& c = convolution_;
    for (int pixel = 0; pixel < pixels_; ++pixel) {
      const int top = pixel / c.output.width * c.stride - c.kernel / 2;
      const int left = pixel % c.output.width * c.stride - c.kernel / 2;
      for (int ky = std::max(0, -top); ky < std::min(c.kernel, c.input.height - top); ++ky) {
        for (int kx = std::max(0, -left); kx < std::min(c.kernel, c.input.width - left); ++kx)
          meets(std::size_t(pixel), std::size_t(ky * c.kernel + kx), std::size_t(top + ky),
                std::size_t(left + kx));
      }
    }
  }
  static std::size_t at(const Layout& layout, std::size_t y, std::size_t x) {
    return y * layout.row() + x * std::size_t(layout.channels);
  }

  /// Threads share the output channels.
  void forward(const Operands& operands, Rows& r, Share share) const {
    const Convolution& c = convolution_;
    std::tie(r.begin, r.end) = share.of(r.channels, 16);
    if (r.begin == r.end) return;
    const std::size_t in = c.input.channels;
    std::fill_n(r.columns, pixels() * row_, 0.0f);
    each_tap([&](std::size_t pixel, std::size_t tap, std::size_t y, std::size_t x) {
      const float* from = operands.x + at(c.input, y, x);
      float* to = r.columns + pixel * row_ + tap;
      for (std::size_t i = 0; i < in; ++i) to[i * taps_] = from[i];
    });
    row_products(r);
    for (std::size_t pixel = 0; pixel < pixels(); ++pixel) {
      const std::size_t width = c.output.width;
      finish_rows({.values = r.values + pixel * r.channels + r.begin,
                   .bias = operands.bias ? operands.bias + r.begin : nullptr,
                   .activation = c.activation,
                   .to = operands.y + at(c.output, pixel / width, pixel % width) + r.begin,
                   .count = r.end - r.begin});
    }
  }

  /// Threads share the input channels.
  void gradient(const Operands& operands, Rows& r, Share share) const {
    const Convolution& c = convolution_;
    const auto [begin, end] = share.of(std::size_t(c.input.channels), 16);
    if (begin == end) return;
    r.begin = begin * taps_;
    r.end = end * taps_;
    for (std::size_t pixel = 0; pixel < pixels(); ++pixel) {
      const std::size_t width = c.output.width;
      std::copy_n(operands.dy + at(c.output, pixel / width, pixel % width), r.channels,
                  r.values + pixel * r.channels);
    }
    row_sums(r);
    // What each input pixel gets of the taps that met it.
    float* const sum = r.values + pixels() * r.channels;
    for (std::size_t y = 0; y < std::size_t(c.input.height); ++y) {
      for (std::size_t x = 0; x < std::size_t(c.input.width); ++x) {
        std::fill(sum + begin, sum + end, 0.0f);
        each_tap([&, begin = begin, end = end](std::size_t pixel, std::size_t tap, std::size_t row,
                                               std::size_t column) {
          if (row != y || column != x) return;
          const float* from = r.columns + pixel * row_ + tap;
          for (std::size_t i = begin; i < end; ++i) sum[i] += from[i * taps_];
        });
        finish_rows({.values = sum + begin,
                     .mask = c.masked ? operands.mask + at(c.input, y, x) + begin : nullptr,
                     .to = operands.dx + at(c.input, y, x) + begin,
                     .count = end - begin});
      }
    }
  }

  const Convolution convolution_;
  const std::size_t taps_, row_;
  const int pixels_;
};

}  // namespace

/// Packing weights for vectors along channels takes longer than a few pixels' arithmetic.
bool rows_are_faster(const Convolution& c) {
  const int pixels = c.output.height * c.output.width;
  const double weights = double(c.input.channels) * c.output.channels * c.kernel * c.kernel;
  return pixels <= 16 && weights >= 1 << 15;
}

std::unique_ptr<Kernel> own_rows(const Convolution& convolution) {
  return std::make_unique<OwnRows>(convolution);
}

}  // namespace millrace::kernels
