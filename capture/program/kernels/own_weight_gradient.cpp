// The gradients of weights and bias.
#include <algorithm>

#include "capture/program/kernels/own.h"
#include "capture/program/kernels/simd.h"

namespace millrace::kernels {
namespace {

constexpr const char* kSwapped = "swapped";

class OwnWeightGradient final : public Kernel {
 public:
  /// Plain: vectors along the output channels, taps from x. Swapped: vectors along the input
  /// channels, taps from dy, which meets x through the flipped kernel.
  OwnWeightGradient(const Convolution& c, bool swapped)
      : convolution_(c),
        swapped_(swapped),
        taps_side_(swapped ? c.output : c.input),
        lane_side_(swapped ? c.input : c.output),
        padded_{c.kernel / 2, taps_side_.width, taps_side_.channels} {
    const std::size_t of_kernel = std::size_t(c.kernel) * c.kernel;
    sums_ = of_kernel * taps_side_.channels * lanes();
    zeros_ = round_up(std::size_t(lane_side_.width) * lane_side_.channels, 16);
    const int taps = int(of_kernel);
    for (int q = 0; q < (swapped ? taps : taps * c.input.channels); ++q) {
      const int place =
          swapped ? (taps - 1 - q) * c.output.channels : q % taps * c.input.channels + q / taps;
      places_.push_back(place * lanes());
    }
  }

  std::string name() const override { return swapped_ ? kSwapped : kPlain; }
  std::size_t packed_floats() const override { return 0; }
  std::size_t scratch_floats() const override {
    return round_up(sums_, 16) + zeros_ + (copies() ? padded_.row() * taps_side_.height : 0);
  }
  std::size_t shared_floats(int threads) const override {
    return by_channels(threads) ? 0 : blocks() * round_up(sums_, 16);
  }
  void pack(const float*, float*, Share) const override {}
  int phases(int threads) const override { return by_channels(threads) ? 1 : 2; }

  void run(const Operands& operands, int phase, Share share) const override {
    if (phase == 1) return unpack_share(operands, share);
    const Convolution& c = convolution_;
    float* zeros = operands.scratch + round_up(sums_, 16);
    std::fill(zeros, zeros + zeros_, 0.0f);
    const float* taps = swapped_ ? operands.dy : operands.x;
    WeightSums w;
    w.broadcast = taps;
    w.broadcast_row = taps_side_.row();
    if (copies()) {
      w.broadcast = padded_.copy(taps, taps_side_, 0, taps_side_.height, zeros + zeros_);
      w.broadcast_row = padded_.row();
    }
    w.broadcast_height = taps_side_.height;
    w.broadcast_channels = taps_side_.channels;
    w.vectors = swapped_ ? operands.x : operands.dy;
    w.vectors_row = lane_side_.row();
    w.height = lane_side_.height;
    w.width = lane_side_.width;
    w.channels = lane_side_.channels;
    w.kernel = c.kernel;
    w.stride = c.stride;
    w.zeros = zeros;
    const std::size_t taps_of_row = std::size_t(c.kernel) * taps_side_.channels;
    if (by_channels(share.count)) {
      w.tap_end = int(taps_of_row);
      w.sums = operands.scratch;
      const auto [begin, end] = share.of(lane_side_.channels, lanes());
      for (std::size_t channel = begin; channel < end; channel += lanes()) {
        w.channel = int(channel);
        weight_sums(w);
        unpack(w.sums, channel, operands.weight_gradient, {});
      }
    } else {
      const auto [begin, end] = share.of(taps_of_row);
      w.tap_begin = int(begin);
      w.tap_end = int(end);
      w.sums = operands.shared;
      for (w.channel = 0; w.channel < w.channels; w.channel += int(lanes())) {
        weight_sums(w);
        w.sums += round_up(sums_, 16);
      }
    }
    if (!operands.bias_gradient) return;
    const auto [first, last] = share.of(c.output.channels, lanes());
    channel_sums(operands.dy, c.output, first, last, operands.bias_gradient, c.accumulate);
  }

 private:
  bool copies() const { return convolution_.kernel > 1; }
  std::size_t blocks() const { return round_up(lane_side_.channels, lanes()) / lanes(); }
  /// Whether threads share the channels, each with sums of its own; else the taps, since there are
  /// too few channels for all to have as many.
  bool by_channels(int threads) const {
    const auto all = std::size_t(threads);
    return blocks() % all == 0 || blocks() >= 4 * all;
  }

  /// What the others have summed, too, to its place.
  void unpack_share(const Operands& operands, Share share) const {
    const float* sums = operands.shared;
    for (int channel = 0; channel < lane_side_.channels; channel += int(lanes())) {
      unpack(sums, channel, operands.weight_gradient, share);
      sums += round_up(sums_, 16);
    }
  }

  /// A share of the sums of `lanes` channels to their place in PyTorch's order.
  void unpack(const float* sums, std::size_t channel, float* gradient, Share share) const {
    const Convolution& c = convolution_;
    const std::size_t in = c.input.channels, out = c.output.channels;
    const std::size_t taps = std::size_t(c.kernel) * c.kernel;
    const std::size_t rows = std::min(lanes(), lane_side_.channels - channel);
    if (!swapped_) {
      const auto [begin, end] = share.of(places_.size(), 16);
      from_lanes(sums, std::span(places_).subspan(begin, end - begin),
                 gradient + channel * in * taps + begin, in * taps, rows, c.accumulate);
      return;
    }
    const auto [begin, end] = share.of(out);
    for (std::size_t o = begin; o < end; ++o)
      from_lanes(sums + o * lanes(), places_, gradient + (o * in + channel) * taps, taps, rows,
                 c.accumulate);
  }

  const Convolution convolution_;
  const bool swapped_;
  const Layout taps_side_, lane_side_;
  const PaddedRows padded_;
  std::size_t sums_ = 0, zeros_ = 0;
  std::vector<std::uint32_t> places_;  ///< for from_lanes
};

}  // namespace

std::vector<std::string> own_weight_gradients(const Convolution& c) {
  if (c.stride != 1 || std::size_t(c.output.channels) >= lanes()) return {kPlain};
  // The side with more channels fills the lanes better.
  if (c.output.channels < c.input.channels) return {kSwapped, kPlain};
  return {kPlain, kSwapped};
}

std::unique_ptr<Kernel> own_weight_gradient(const Convolution& convolution,
                                            const std::string& name) {
  return std::make_unique<OwnWeightGradient>(convolution, name == kSwapped);
}

}  // namespace millrace::kernels
