// Blocks with a shortcut: what they learn is added to their input.
#include <ATen/ATen.h>

#include "stages/layers.h"

namespace millrace::stages {
namespace {

constexpr std::int64_t kGroups = 32;    // Wu and He's default
constexpr std::int64_t kExpansion = 4;  // bottleneck output over width

/// A named part of a block and where its parameters begin in the block's list.
struct Part {
  std::string name;
  std::unique_ptr<Layer> layer;
  std::size_t first = 0;
  std::size_t count = 0;
};

class ResidualBlock final : public Layer {
 public:
  ResidualBlock(bool bottleneck, std::int64_t in, std::int64_t width, std::int64_t stride)
      : bottleneck_(bottleneck),
        in_(in),
        out_(bottleneck ? width * kExpansion : width),
        stride_(stride) {
    if (bottleneck) {
      add_pair("1", in, width, 1, 1);
      add_pair("2", width, width, 3, stride);
      add_pair("3", width, out_, 1, 1);
    } else {
      add_pair("1", in, width, 3, stride);
      add_pair("2", width, width, 3, 1);
    }
    branch_ = parts_.size();
    if (stride != 1 || in != out_) {
      add("downsample.0", make_conv(in, out_, 1, stride));
      add("downsample.1", make_group_norm(groups(out_), out_));
    }
  }

  std::string describe() const override {
    return std::string(bottleneck_ ? "bottleneck " : "basic-block ") + std::to_string(in_) + "->" +
           std::to_string(out_) + (stride_ > 1 ? " s" + std::to_string(stride_) : "");
  }

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> all;
    for (const Part& part : parts_) {
      for (ParameterSpec spec : part.layer->parameters()) {
        spec.name = part.name + "." + spec.name;
        all.push_back(std::move(spec));
      }
    }
    return all;
  }

  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor> p) const override {
    const auto run = [&](std::size_t begin, std::size_t end, at::Tensor y, bool relu_between) {
      for (std::size_t i = begin; i < end; ++i) {
        y = parts_[i].layer->forward({&y, 1}, p.subspan(parts_[i].first, parts_[i].count));
        // Parts alternate convolution, norm; an activation follows each norm but the last.
        if (relu_between && (i - begin) % 2 == 1 && i + 1 < end) y = at::relu(y);
      }
      return y;
    };
    return at::relu(run(0, branch_, x[0], true) + run(branch_, parts_.size(), x[0], false));
  }

 private:
  static std::int64_t groups(std::int64_t channels) {
    return channels % kGroups == 0 ? kGroups : 1;
  }

  void add(std::string name, std::unique_ptr<Layer> layer) {
    const std::size_t first = parts_.empty() ? 0 : parts_.back().first + parts_.back().count;
    const std::size_t count = layer->parameters().size();
    parts_.push_back({std::move(name), std::move(layer), first, count});
  }
  void add_pair(const std::string& index, std::int64_t in, std::int64_t out, std::int64_t kernel,
                std::int64_t stride) {
    add("conv" + index, make_conv(in, out, kernel, stride));
    add("norm" + index, make_group_norm(groups(out), out));
  }

  bool bottleneck_;
  std::int64_t in_, out_, stride_;
  std::vector<Part> parts_;
  std::size_t branch_ = 0;  ///< parts before this one are the branch, the rest the shortcut
};

/// x + relu(conv(x)). Half of He's initial weights make that x + relu(conv(x)) / 2: signal and
/// gradient keep their size through many blocks, and a gradient that comes late still fits.
std::unique_ptr<Layer> make_residual(const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
  const std::int64_t channels = shape.channels, kernel = *spec.kernel;
  if (kernel % 2 == 0)
    throw std::invalid_argument("kernel must be odd, so that padding keeps the size");
  const std::int64_t fan_in = channels * kernel * kernel;
  return layer_of(
      {.text = "residual " + std::to_string(channels) + " k" + std::to_string(kernel),
       .parameters = {{"weight", {channels, channels, kernel, kernel}, Init::he_uniform, 4 * fan_in},
                      {"bias", {channels}, Init::zeros}},
       .of = [=](Values x, Values p) {
         return x[0] + at::relu(at::conv2d(x[0], p[0], p[1], 1, kernel / 2));
       }});
}

std::unique_ptr<Layer> make_block(const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
  const bool bottleneck = spec.type == "bottleneck";
  const std::int64_t in = shape.channels, width = *spec.out, stride = spec.stride.value_or(1);
  shape = {bottleneck ? width * kExpansion : width, (shape.height + stride - 1) / stride,
           (shape.width + stride - 1) / stride};
  return std::make_unique<ResidualBlock>(bottleneck, in, width, stride);
}

}  // namespace

/// He et al., arXiv 1512.03385, with GroupNorm (Wu and He, arXiv 1803.08494) where they have
/// BatchNorm: a sample is one frame, and a batch of one has no batch statistics worth the name.
std::vector<LayerType> residual_layers() {
  const LayerKey stride{"stride", "of its first wide convolution and its shortcut", "1"};
  return {{"basic-block",
           "ResNet's block of two 3x3 convolutions, with group norm",
           {{"out", "output channels", ""}, stride},
           make_block},
          {"bottleneck",
           "ResNet's block of 1x1, 3x3 and 1x1 convolutions, with group norm",
           {{"out", "channels inside; it gives 4 times as many", ""}, stride},
           make_block},
          {"residual",
           "its input plus the ReLU of a convolution of it, begun at half of He's weights",
           {{"kernel", "side of its kernel, odd", ""}},
           make_residual}};
}

}  // namespace millrace::stages
