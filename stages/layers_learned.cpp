// Layers that are one operator with parameters: convolutions, linear, norms.
#include <ATen/ATen.h>

#include <stdexcept>

#include "stages/layers.h"

namespace millrace::stages {
namespace {

using std::to_string;

/// Each pixel becomes a square: PyTorch's ConvTranspose2d with kernel = stride = `factor`.
std::unique_ptr<Layer> transposed_conv(const LayerSpec& spec, ImageShape& shape,
                                       const ImageShape*) {
  const std::int64_t in = shape.channels, out = spec.whole("out"), factor = spec.whole("factor");
  const std::int64_t fan_in = out * factor * factor;  // as PyTorch counts it
  shape = {out, shape.height * factor, shape.width * factor};
  return layer_of(
      {.text =
           "transposed-conv " + to_string(in) + "->" + to_string(out) + " x" + to_string(factor),
       .parameters = {{"weight", {in, out, factor, factor}, Init::kaiming_uniform, fan_in},
                      {"bias", {out}, Init::fan_in_uniform, fan_in}},
       .of = [=](Values x, Values p) { return at::conv_transpose2d(x[0], p[0], p[1], factor); }});
}

std::unique_ptr<Layer> make_linear(std::int64_t in, std::int64_t out) {
  return layer_of(
      {.text = "linear " + to_string(in) + "->" + to_string(out),
       .parameters = {{"weight", {out, in}, Init::kaiming_uniform, in},
                      {"bias", {out}, Init::fan_in_uniform, in}},
       .of =
           [](Values x, Values p) {
             // A vector is a picture of one pixel, so any layer may follow.
             return at::linear(x[0].flatten(1), p[0], p[1]).unsqueeze(-1).unsqueeze(-1);
           },
       .column = [=](int ways) { return out % ways == 0 ? make_linear(in, out / ways) : nullptr; },
       .row = [=](int ways) { return in % ways == 0 ? make_linear(in / ways, out) : nullptr; }});
}

/// PyTorch's BatchNorm2d in eval(): with one frame's own statistics it would be another network.
std::unique_ptr<Layer> batch_norm(const LayerSpec&, ImageShape& shape, const ImageShape*) {
  const std::vector<std::int64_t> channels = {shape.channels};
  return layer_of(
      {.text = "batchnorm, frozen",
       .parameters =
           {{"weight", channels, Init::ones},
            {"bias", channels, Init::zeros},
            {.name = "running_mean", .shape = channels, .init = Init::zeros, .fixed = true},
            {.name = "running_var", .shape = channels, .init = Init::ones, .fixed = true}},
       .of = [](Values x, Values p) {
         if (x[0].is_cuda())  // there at::batch_norm() is cuDNN's
           return std::get<0>(
               at::native_batch_norm(x[0], p[0], p[1], p[2], p[3], false, 0.1, 1e-5));
         return at::batch_norm(x[0], p[0], p[1], p[2], p[3], /*training=*/false, 0.1, 1e-5,
                               /*cudnn_enabled=*/false);
       }});
}

/// Self-attention of pixels: softmax(q k^T / sqrt(d)) v per head (Vaswani et al. 2017), with a
/// linear layer before (q, k, v) and after, as in Vision Transformers.
std::unique_ptr<Layer> attention(const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
  constexpr std::int64_t kMostPixels = 4096;  // quadratic in pixels
  const std::int64_t heads = spec.whole("groups"), c = shape.channels;
  require_groups(heads, c);
  if (shape.height * shape.width > kMostPixels)
    throw std::invalid_argument("is for grids of at most " + to_string(kMostPixels) +
                                " pixels, not " + to_string(shape.width) + "x" +
                                to_string(shape.height));
  const auto forward = [=](Values x, Values p) {
    const std::int64_t pixels = x[0].size(2) * x[0].size(3);
    const at::Tensor qkv = at::linear(x[0].flatten(2).transpose(1, 2), p[0], p[1])
                               .reshape({1, pixels, 3, heads, c / heads})
                               .permute({2, 0, 3, 1, 4});
    const at::Tensor seen = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]);
    return at::linear(seen.transpose(1, 2).reshape({1, pixels, c}), p[2], p[3])
        .transpose(1, 2)
        .reshape(x[0].sizes());
  };
  return layer_of({.text = "attention, heads " + to_string(heads),
                   .parameters = {{"qkv.weight", {3 * c, c}, Init::kaiming_uniform, c},
                                  {"qkv.bias", {3 * c}, Init::fan_in_uniform, c},
                                  {"proj.weight", {c, c}, Init::kaiming_uniform, c},
                                  {"proj.bias", {c}, Init::fan_in_uniform, c}},
                   .of = forward});
}

std::unique_ptr<Layer> conv_layer(const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
  const std::int64_t kernel = spec.whole("kernel"), out = spec.whole("out"),
                     groups = spec.whole("groups");
  const std::int64_t stride = spec.whole("stride"), in = shape.channels;
  require_odd(kernel);
  if (in % groups != 0 || out % groups != 0) {
    throw std::invalid_argument("groups " + to_string(groups) + " must divide its input's " +
                                to_string(in) + " channels and its out");
  }
  shape = {out, (shape.height + stride - 1) / stride, (shape.width + stride - 1) / stride};
  const std::string& init = spec.text("init");
  return make_conv(in, out, kernel, stride, groups,
                   init == "he"     ? Init::he_uniform
                   : init == "zero" ? Init::zeros
                                    : Init::kaiming_uniform);
}

std::unique_ptr<Layer> linear_layer(const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
  const std::int64_t in = shape.channels;
  if (shape.height != 1 || shape.width != 1)
    throw std::invalid_argument("linear needs a flatten before it");
  shape.channels = spec.whole("out");
  return make_linear(in, shape.channels);
}

}  // namespace

void require_groups(std::int64_t groups, std::int64_t channels) {
  if (channels % groups == 0) return;
  throw std::invalid_argument("groups " + to_string(groups) + " must divide its input's " +
                              to_string(channels) + " channels");
}

void require_odd(std::int64_t kernel) {
  if (kernel % 2 == 0)
    throw std::invalid_argument("kernel must be odd, so that padding keeps the size");
}

std::unique_ptr<Layer> make_conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                 std::int64_t stride, std::int64_t groups, Init init) {
  const std::int64_t fan_in = in / groups * kernel * kernel;
  const Init bias = init == Init::kaiming_uniform ? Init::fan_in_uniform : Init::zeros;
  const auto split = [=](std::int64_t parted, int ways, std::int64_t i, std::int64_t o) {
    return groups > 1 || parted % ways != 0 ? nullptr : make_conv(i, o, kernel, stride, 1, init);
  };
  return layer_of({.text = "conv " + to_string(in) + "->" + to_string(out) + " k" +
                           to_string(kernel) + (stride > 1 ? " s" + to_string(stride) : "") +
                           (groups > 1 ? " g" + to_string(groups) : ""),
                   .parameters = {{"weight", {out, in / groups, kernel, kernel}, init, fan_in},
                                  {"bias", {out}, bias, fan_in}},
                   .of =
                       [=](Values x, Values p) {
                         return at::conv2d(x[0], p[0], p[1], stride, kernel / 2, /*dilation=*/1,
                                           groups);
                       },
                   .column = [=](int ways) { return split(out, ways, in, out / ways); },
                   .row = [=](int ways) { return split(in, ways, in / ways, out); }});
}

std::unique_ptr<Layer> make_group_norm(std::int64_t groups, std::int64_t channels) {
  require_groups(groups, channels);
  return layer_of(
      {.text = groups == channels ? "instancenorm" : "groupnorm " + to_string(groups),
       .parameters = {{"weight", {channels}, Init::ones}, {"bias", {channels}, Init::zeros}},
       .of = [=](Values x, Values p) {
         // With channels-last memory, LibTorch 2.11 writes an unneeded input gradient, as at the
         // beginning of a graph, to a null address.
         const bool copies =
             x[0].is_leaf() && x[0].suggest_memory_format() == at::MemoryFormat::ChannelsLast;
         return at::group_norm(copies ? x[0].clone(at::MemoryFormat::Contiguous) : x[0], groups,
                               p[0], p[1]);
       }});
}

std::vector<LayerType> learned_layers() {
  const LayerKey out{"out", "output channels", LayerKey::Whole{}};
  return {
      {"conv",
       "convolution with bias, padded so that stride 1 keeps the size",
       {out,
        {"kernel", "side of its kernel, odd", LayerKey::Whole{1, 63}},
        {"stride", "pixels from one output to the next", LayerKey::Whole{1, 64}, 1},
        {"groups", "groups of channels kept apart; as many as channels: depthwise",
         LayerKey::Whole{}, 1},
        {"init",
         "initial weights: \"torch\": nn.Conv2d's; \"he\": for a ReLU after it, bias 0; \"zero\"",
         LayerKey::Names{"torch", "he", "zero"}, "torch"}},
       conv_layer},
      {"transposed-conv",
       "each pixel becomes a square, learned: factor times as wide and high",
       {out, {"factor", "side of the square", LayerKey::Whole{1, 64}, 2}},
       transposed_conv},
      {"linear", "a matrix times the vector, plus bias; after flatten", {out}, linear_layer},
      {"groupnorm",
       "each group of channels to mean 0 and variance 1, then a learned scale and shift",
       {{"groups", "groups of channels; 1: layer norm", LayerKey::Whole{}}},
       [](const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
         return make_group_norm(spec.whole("groups"), shape.channels);
       }},
      {"batchnorm",
       "with the statistics that its weights file has, which stay as they are; scale and shift "
       "learn",
       {},
       batch_norm},
      {"attention",
       "softmax attention of each pixel to all, with a linear layer before and after; for small "
       "grids",
       {{"groups", "number of heads", LayerKey::Whole{}, 1}},
       attention},
      {"instancenorm",
       "each channel to mean 0 and variance 1, then a learned scale and shift",
       {},
       [](const LayerSpec&, ImageShape& shape, const ImageShape*) {
         return make_group_norm(shape.channels, shape.channels);
       }}};
}

}  // namespace millrace::stages
