// Convolutions with any window: of even or unequal sides, without padding, dilated. What the taps
// of an output pixel meet is one pixel of as many channels, in the order of PyTorch's weights,
// which a kernel of one tap takes.
#include <algorithm>

#include "capture/program/kernels/own.h"
#include "capture/program/kernels/simd.h"

namespace millrace::kernels {
namespace {

class Unfolded final : public Kernel {
 public:
  Unfolded(const Convolution& c, const std::string& name)
      : convolution_(c),
        window_(window_of(c)),
        one_(of_one_tap(c)),
        kernel_(make_kernel(one_, name)),
        taps_(std::size_t(taps_of(window_))) {}

  std::string name() const override { return kUnfolded + kernel_->name(); }
  /// Packed by the phase that comes after the input's unfolding.
  std::size_t packed_floats() const override { return 0; }
  std::size_t scratch_floats() const override {
    return round_up(kernel_->packed_floats(), 16) + kernel_->scratch_floats();
  }
  std::size_t shared_floats(int threads) const override {
    return round_up(one_.input.floats(), 16) + kernel_->shared_floats(threads);
  }
  void pack(const float*, float*, Share) const override {}
  int phases(int threads) const override { return 1 + kernel_->phases(threads); }

  void run(const Operands& operands, int phase, Share share) const override {
    float* const unfolded = operands.shared;
    const bool folds = convolution_.pass == Pass::kDataGradient;
    if (folds && phase == kernel_->phases(share.count)) return fold(unfolded, operands, share);
    if (!folds && phase == 0) return unfold(operands.x, unfolded, share);
    Operands one = operands;
    one.x = one.dx = unfolded;
    one.shared = unfolded + round_up(one_.input.floats(), 16);
    if (kernel_->packed_floats() > 0) {
      kernel_->pack(operands.packed, operands.scratch, share);
      one.packed = operands.scratch;
      one.scratch = operands.scratch + round_up(kernel_->packed_floats(), 16);
    }
    kernel_->run(one, folds ? phase : phase - 1, share);
  }

 private:
  /// Threads share the output's rows.
  void unfold(const float* x, float* unfolded, Share share) const {
    const auto& [rows, columns] = window_;
    const Layout &in = convolution_.input, &out = convolution_.output;
    const auto [begin, end] = share.of(std::size_t(out.height));
    float* to = unfolded + begin * one_.input.row();
    std::fill(to, unfolded + end * one_.input.row(), 0.0f);
    for (int y = int(begin); y < int(end); ++y) {
      for (int column = 0; column < out.width; ++column, to += one_.input.channels) {
        for (int tap = 0; tap < int(taps_); ++tap) {
          const int v = y * rows.stride - rows.padding + tap / columns.count * rows.dilation;
          const int u =
              column * columns.stride - columns.padding + tap % columns.count * columns.dilation;
          if (v < 0 || u < 0 || v >= in.height || u >= in.width) continue;
          const float* from = x + std::size_t(v) * in.row() + std::size_t(u) * in.channels;
          for (int i = 0; i < in.channels; ++i) to[std::size_t(i) * taps_ + tap] = from[i];
        }
      }
    }
  }

  /// Each input pixel gets what the taps that met it were given. Threads share the input's rows.
  void fold(const float* unfolded, const Operands& operands, Share share) const {
    const Layout& in = convolution_.input;
    const auto [begin, end] = share.of(std::size_t(in.height));
    for (std::size_t y = begin; y < end; ++y) {
      for (std::size_t x = 0; x < std::size_t(in.width); ++x) {
        float* const to = operands.dx + y * in.row() + x * in.channels;
        std::fill_n(to, in.channels, 0.0f);
        for (int tap = 0; tap < int(taps_); ++tap) add_tap(unfolded, tap, int(y), int(x), to);
        if (!convolution_.masked) continue;
        const float* const of_mask = operands.mask + y * in.row() + x * in.channels;
        for (int i = 0; i < in.channels; ++i) to[i] = of_mask[i] <= 0 ? 0 : to[i];
      }
    }
  }
  void add_tap(const float* unfolded, int tap, int y, int x, float* to) const {
    const auto& [rows, columns] = window_;
    const int down = y + rows.padding - tap / columns.count * rows.dilation;
    const int right = x + columns.padding - tap % columns.count * columns.dilation;
    if (down < 0 || right < 0 || down % rows.stride || right % columns.stride) return;
    const int v = down / rows.stride, u = right / columns.stride;
    if (v >= one_.input.height || u >= one_.input.width) return;
    const float* from = unfolded + std::size_t(v) * one_.input.row() +
                        std::size_t(u) * one_.input.channels + std::size_t(tap);
    for (int i = 0; i < convolution_.input.channels; ++i) to[i] += from[std::size_t(i) * taps_];
  }

  const Convolution convolution_;
  const TapGrid window_;
  const Convolution one_;
  const std::unique_ptr<Kernel> kernel_;
  const std::size_t taps_;
};

}  // namespace

Convolution of_one_tap(const Convolution& c) {
  Convolution one = c;
  one.input = {.height = c.output.height,
               .width = c.output.width,
               .channels = c.input.channels * taps_of(window_of(c))};
  one.window.reset();
  one.kernel = one.stride = 1;
  one.masked = false;
  return one;
}

std::unique_ptr<Kernel> own_unfolded(const Convolution& convolution, const std::string& name) {
  return std::make_unique<Unfolded>(convolution, name);
}

}  // namespace millrace::kernels
