#include <ATen/ATen.h>

#include "stages/layers.h"

namespace millrace::stages {
namespace {

constexpr std::int64_t kGroups = 32;    // Wu and He's default
constexpr std::int64_t kExpansion = 4;  // bottleneck output over width

/// A convolution or a norm, with one weight and one bias.
struct NamedLayer {
  std::string name;
  std::shared_ptr<const Layer> layer;
};
using Parts = std::vector<NamedLayer>;

void add_pair(Parts& parts, const std::string& conv, const std::string& norm, std::int64_t in,
              std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  parts.push_back({conv, make_conv(in, out, kernel, stride)});
  parts.push_back({norm, make_group_norm(out % kGroups == 0 ? kGroups : 1, out)});
}

at::Tensor run(std::span<const NamedLayer> parts, at::Tensor y, Values p) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    y = parts[i].layer->forward({&y, 1}, p.subspan(2 * i, 2));
    if (i % 2 == 1 && i + 1 < parts.size()) y = at::relu(y);
  }
  return y;
}

/// x + relu(conv(x)). With half of He's initial weights it is x + relu(conv(x)) / 2: signal and
/// gradient retain their size through many blocks, and a late gradient still fits.
std::unique_ptr<Layer> make_residual(const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
  const std::int64_t channels = shape.channels, kernel = spec.whole("kernel");
  require_odd(kernel);
  const std::int64_t fan_in = channels * kernel * kernel;
  return layer_of(
      {.text = "residual " + std::to_string(channels) + " k" + std::to_string(kernel),
       .parameters =
           {{"weight", {channels, channels, kernel, kernel}, Init::he_uniform, 4 * fan_in},
            {"bias", {channels}, Init::zeros}},
       .of = [=](Values x, Values p) {
         return x[0] + at::relu(at::conv2d(x[0], p[0], p[1], 1, kernel / 2));
       }});
}

std::unique_ptr<Layer> make_block(const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
  const bool bottleneck = spec.type == "bottleneck";
  const std::int64_t in = shape.channels, width = spec.whole("out"), stride = spec.whole("stride");
  const std::int64_t out = bottleneck ? width * kExpansion : width;
  shape = {out, (shape.height + stride - 1) / stride, (shape.width + stride - 1) / stride};
  Parts parts;
  if (bottleneck) {
    add_pair(parts, "conv1", "norm1", in, width, 1, 1);
    add_pair(parts, "conv2", "norm2", width, width, 3, stride);
    add_pair(parts, "conv3", "norm3", width, out, 1, 1);
  } else {
    add_pair(parts, "conv1", "norm1", in, width, 3, stride);
    add_pair(parts, "conv2", "norm2", width, width, 3, 1);
  }
  const std::size_t branch = parts.size();  // the shortcut follows
  if (stride != 1 || in != out) add_pair(parts, "downsample.0", "downsample.1", in, out, 1, stride);
  std::vector<ParameterSpec> parameters;
  for (const auto& [name, layer] : parts) {
    for (ParameterSpec& own : layer->parameters()) {
      own.name = name + "." + own.name;
      parameters.push_back(std::move(own));
    }
  }
  return layer_of({.text = spec.type + " " + std::to_string(in) + "->" + std::to_string(out) +
                           (stride > 1 ? " s" + std::to_string(stride) : ""),
                   .parameters = std::move(parameters),
                   .of = [parts, branch](Values x, Values p) {
                     const std::span all(parts);
                     return at::relu(run(all.first(branch), x[0], p) +
                                     run(all.subspan(branch), x[0], p.subspan(2 * branch)));
                   }});
}

}  // namespace

/// He et al., arXiv 1512.03385, with GroupNorm (Wu and He, arXiv 1803.08494) instead of BatchNorm:
/// a sample is one frame, too little for batch statistics.
std::vector<LayerType> residual_layers() {
  const LayerKey stride{"stride", "of its first wide convolution and its shortcut",
                        LayerKey::Whole{1, 64}, 1};
  return {{"basic-block",
           "ResNet's block of two 3x3 convolutions, with group norm",
           {{"out", "output channels", LayerKey::Whole{}}, stride},
           make_block},
          {"bottleneck",
           "ResNet's block of 1x1, 3x3 and 1x1 convolutions, with group norm",
           {{"out", "channels inside; it gives 4 times as many", LayerKey::Whole{}}, stride},
           make_block},
          {"residual",
           "its input plus the ReLU of a convolution of it, with He initialisation scaled by 1/2",
           {{"kernel", "side of its kernel, odd", LayerKey::Whole{1, 63}}},
           make_residual}};
}

}  // namespace millrace::stages
