// Convolutions done by a kernel of another shape on copies: by group, or for any window.
#include <algorithm>

#include "capture/program/kernels/internal.h"

namespace millrace::kernels {
namespace {

/// Copies a group's channels next to each other and convolves them as if there were no others.
class Grouped final : public Kernel {
 public:
  Grouped(const Convolution& c, const std::string& name)
      : convolution_(c),
        one_(of_one_group(c)),
        kernel_(make_kernel(one_, name)),
        weights_(std::size_t(one_.input.channels) * one_.output.channels * taps_of(window_of(c))) {}

  std::size_t scratch_floats() const override {
    return rounded(kernel_->scratch_floats()) + rounded(kernel_->shared_floats(1)) +
           rounded(one_.output.floats()) + (one_.masked ? 2 : 1) * rounded(one_.input.floats());
  }

  /// Threads share the groups.
  void run(const Operands& operands, int, Share share) const override {
    const auto [begin, end] = share.of(std::size_t(convolution_.groups));
    for (std::size_t group = begin; group < end; ++group) run_group(operands, group);
  }

 private:
  static std::size_t rounded(std::size_t floats) { return round_up(floats, 16); }

  void run_group(const Operands& all, std::size_t group) const {
    const Convolution& c = convolution_;
    float* at = all.scratch;
    const auto next = [&](std::size_t floats) {
      float* const begin = at;
      at += rounded(floats);
      return begin;
    };
    Operands one{.scratch = next(kernel_->scratch_floats()),
                 .shared = next(kernel_->shared_floats(1))};
    float *const input = next(one_.input.floats()), *const output = next(one_.output.floats());
    const std::size_t inputs = group * std::size_t(one_.input.channels),
                      outputs = group * std::size_t(one_.output.channels);
    if (all.weights) one.weights = all.weights + group * weights_;
    if (all.bias) one.bias = all.bias + outputs;
    if (c.pass == Pass::kForward) {
      one.source = gathered(all.source + inputs, c.input, one_.input, input);
      one.made = output;
      kernel_->run(one);
      return scatter(output, one_.output, c.output, all.made + outputs);
    }
    one.source = gathered(all.source + outputs, c.output, one_.output, output);
    if (c.pass == Pass::kDataGradient) {
      one.made = input;
      if (all.mask)
        one.mask = gathered(all.mask + inputs, c.input, one_.input, next(one_.input.floats()));
      kernel_->run(one);
      return scatter(input, one_.input, c.input, all.made + inputs);
    }
    one.x = gathered(all.x + inputs, c.input, one_.input, input);
    one.made = all.made + group * weights_;
    if (all.bias_gradient) one.bias_gradient = all.bias_gradient + outputs;
    kernel_->run(one);
  }

  /// `from`: the group's first channel in pixel (0, 0) of the whole image.
  static const float* gathered(const float* from, const Layout& all, const Layout& one, float* to) {
    float* pixel = to;
    for (int y = 0; y < one.height; ++y) {
      const float* source = from + std::size_t(y) * all.row();
      for (int x = 0; x < one.width; ++x, source += all.channels, pixel += one.channels)
        std::copy_n(source, one.channels, pixel);
    }
    return to;
  }
  static void scatter(const float* from, const Layout& one, const Layout& all, float* to) {
    for (int y = 0; y < one.height; ++y) {
      float* pixel = to + std::size_t(y) * all.row();
      for (int x = 0; x < one.width; ++x, from += one.channels, pixel += all.channels)
        std::copy_n(from, one.channels, pixel);
    }
  }

  const Convolution convolution_, one_;
  const std::unique_ptr<Kernel> kernel_;
  const std::size_t weights_;  ///< per group
};

/// Any window: even or unequal sides, without padding, dilated. The inputs under an output's taps
/// become the channels of one pixel, in the order of PyTorch's weights, for a 1x1 kernel.
class Unfolded final : public Kernel {
 public:
  Unfolded(const Convolution& c, const std::string& name)
      : convolution_(c),
        window_(window_of(c)),
        one_(of_one_tap(c)),
        kernel_(make_kernel(one_, name)),
        taps_(std::size_t(taps_of(window_))) {}

  std::size_t scratch_floats() const override { return kernel_->scratch_floats(); }
  std::size_t shared_floats(int threads) const override {
    return round_up(one_.input.floats(), 16) + kernel_->shared_floats(threads);
  }
  int phases(int threads) const override { return 1 + kernel_->phases(threads); }

  void run(const Operands& operands, int phase, Share share) const override {
    float* const unfolded = operands.shared;
    const bool folds = convolution_.pass == Pass::kDataGradient;
    if (folds && phase == kernel_->phases(share.count)) return fold(unfolded, operands, share);
    if (!folds && phase == 0)
      return unfold(forward(convolution_) ? operands.source : operands.x, unfolded, share);
    Operands one = operands;
    if (forward(convolution_)) one.source = unfolded;
    if (folds) one.made = unfolded;
    one.x = unfolded;
    one.mask = nullptr;
    one.shared = unfolded + round_up(one_.input.floats(), 16);
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

  /// Sums for each input pixel the gradients of the taps on it. Threads share the input's rows.
  void fold(const float* unfolded, const Operands& operands, Share share) const {
    const Layout& in = convolution_.input;
    const auto [begin, end] = share.of(std::size_t(in.height));
    for (std::size_t y = begin; y < end; ++y) {
      for (std::size_t x = 0; x < std::size_t(in.width); ++x) {
        float* const to = operands.made + y * in.row() + x * in.channels;
        std::fill_n(to, in.channels, 0.0f);
        for (int tap = 0; tap < int(taps_); ++tap) add_tap(unfolded, tap, int(y), int(x), to);
        if (!operands.mask) continue;
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

Convolution of_one_group(const Convolution& convolution) {
  Convolution one = convolution;
  for (Layout* side : {&one.input, &one.output}) side->channels /= convolution.groups;
  one.groups = 1;
  return one;
}

std::unique_ptr<Kernel> make_grouped(const Convolution& convolution, const std::string& name) {
  return std::make_unique<Grouped>(convolution, name);
}

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

std::unique_ptr<Kernel> make_unfolded(const Convolution& convolution, const std::string& name) {
  return std::make_unique<Unfolded>(convolution, name);
}

}  // namespace millrace::kernels
