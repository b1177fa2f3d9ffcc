// Convolutions of several channels a group: a group's channels are copied side by side, and a
// kernel convolves them as if there were no others.
#include <algorithm>

#include "capture/program/kernels/own.h"
#include "capture/program/kernels/simd.h"

namespace millrace::kernels {
namespace {

class Grouped final : public Kernel {
 public:
  Grouped(const Convolution& c, const std::string& name)
      : convolution_(c),
        one_(of_one_group(c)),
        kernel_(make_kernel(one_, name)),
        weights_(std::size_t(one_.input.channels) * one_.output.channels * taps_of(window_of(c))) {}

  std::string name() const override { return kGrouped + kernel_->name(); }
  /// Each group's weights are packed where they are used.
  std::size_t packed_floats() const override { return 0; }
  std::size_t scratch_floats() const override {
    return rounded(kernel_->packed_floats()) + rounded(kernel_->scratch_floats()) +
           rounded(kernel_->shared_floats(1)) + rounded(one_.output.floats()) +
           (one_.masked ? 2 : 1) * rounded(one_.input.floats());
  }
  void pack(const float*, float*, Share) const override {}

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
    float* const packed = next(kernel_->packed_floats());
    Operands one{.scratch = next(kernel_->scratch_floats()),
                 .shared = next(kernel_->shared_floats(1))};
    float *const input = next(one_.input.floats()), *const output = next(one_.output.floats());
    const std::size_t inputs = group * std::size_t(one_.input.channels),
                      outputs = group * std::size_t(one_.output.channels);
    const float* const weights = all.packed + group * weights_;
    one.packed = kernel_->packed_floats() > 0 ? packed : weights;
    if (kernel_->packed_floats() > 0) kernel_->pack(weights, packed);
    switch (c.pass) {
      case Pass::kForward:
        one.x = gathered(all.x + inputs, c.input, one_.input, input);
        one.y = output;
        if (all.bias) one.bias = all.bias + outputs;
        kernel_->run(one);
        scatter(output, one_.output, c.output, all.y + outputs);
        return;
      case Pass::kDataGradient:
        one.dy = gathered(all.dy + outputs, c.output, one_.output, output);
        one.dx = input;
        if (c.masked)
          one.mask = gathered(all.mask + inputs, c.input, one_.input, next(one_.input.floats()));
        kernel_->run(one);
        scatter(input, one_.input, c.input, all.dx + inputs);
        return;
      case Pass::kWeightGradient:
        one.x = gathered(all.x + inputs, c.input, one_.input, input);
        one.dy = gathered(all.dy + outputs, c.output, one_.output, output);
        one.weight_gradient = all.weight_gradient + group * weights_;
        if (all.bias_gradient) one.bias_gradient = all.bias_gradient + outputs;
        kernel_->run(one);
    }
  }

  /// `from`: the group's first channel of pixel (0, 0) among all channels.
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
  const std::size_t weights_;  ///< of a group
};

}  // namespace

Convolution of_one_group(const Convolution& convolution) {
  Convolution one = convolution;
  for (Layout* side : {&one.input, &one.output}) side->channels /= convolution.groups;
  one.groups = 1;
  return one;
}

std::unique_ptr<Kernel> own_grouped(const Convolution& convolution, const std::string& name) {
  return std::make_unique<Grouped>(convolution, name);
}

}  // namespace millrace::kernels
