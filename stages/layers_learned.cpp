// Layers that are one operator with parameters: convolutions, linear, norms.
#include <ATen/ATen.h>

#include <stdexcept>

#include "stages/layers.h"
#include "stages/splittable.h"

namespace millrace::stages {
namespace {

class Conv final : public Layer, public Splittable {
 public:
  /// `init`: of its weights, with a bias of zeros; kaiming_uniform: both as PyTorch's.
  Conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
       std::int64_t groups, Init init = Init::kaiming_uniform)
      : in_(in), out_(out), kernel_(kernel), stride_(stride), groups_(groups), init_(init) {}
  std::string describe() const override {
    return "conv " + std::to_string(in_) + "->" + std::to_string(out_) + " k" + std::to_string(kernel_) +
           (stride_ > 1 ? " s" + std::to_string(stride_) : "") + (groups_ > 1 ? " g" + std::to_string(groups_) : "");
  }
  std::vector<ParameterSpec> parameters() const override {
    const std::int64_t fan_in = in_ / groups_ * kernel_ * kernel_;
    const Init bias = init_ == Init::kaiming_uniform ? Init::fan_in_uniform : Init::zeros;
    return {{"weight", {out_, in_ / groups_, kernel_, kernel_}, init_, fan_in},
            {"bias", {out_}, bias, fan_in}};
  }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor> p) const override {
    return at::conv2d(x[0], p[0], p[1], stride_, kernel_ / 2, /*dilation=*/1, groups_);
  }
  std::unique_ptr<Layer> column(int ways) const override {
    if (groups_ > 1 || out_ % ways != 0) return nullptr;
    return std::make_unique<Conv>(in_, out_ / ways, kernel_, stride_, 1, init_);
  }
  std::unique_ptr<Layer> row(int ways) const override {
    if (groups_ > 1 || in_ % ways != 0) return nullptr;
    return std::make_unique<Conv>(in_ / ways, out_, kernel_, stride_, 1, init_);
  }

 private:
  std::int64_t in_, out_, kernel_, stride_, groups_;
  Init init_;
};

/// Each pixel becomes a square of `factor` x `factor`: PyTorch's ConvTranspose2d with kernel and
/// stride alike.
class TransposedConv final : public Layer {
 public:
  TransposedConv(std::int64_t in, std::int64_t out, std::int64_t factor)
      : in_(in), out_(out), factor_(factor) {}
  std::string describe() const override {
    return "transposed-conv " + std::to_string(in_) + "->" + std::to_string(out_) + " x" + std::to_string(factor_);
  }
  std::vector<ParameterSpec> parameters() const override {
    const std::int64_t fan_in = out_ * factor_ * factor_;  // as PyTorch counts it
    return {{"weight", {in_, out_, factor_, factor_}, Init::kaiming_uniform, fan_in},
            {"bias", {out_}, Init::fan_in_uniform, fan_in}};
  }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor> p) const override {
    return at::conv_transpose2d(x[0], p[0], p[1], factor_);
  }

 private:
  std::int64_t in_, out_, factor_;
};

class Linear final : public Layer, public Splittable {
 public:
  Linear(std::int64_t in, std::int64_t out) : in_(in), out_(out) {}
  std::string describe() const override { return "linear " + std::to_string(in_) + "->" + std::to_string(out_); }
  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {out_, in_}, Init::kaiming_uniform, in_},
            {"bias", {out_}, Init::fan_in_uniform, in_}};
  }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor> p) const override {
    // A vector is a picture of one pixel, so that any layer may follow.
    return at::linear(x[0].flatten(1), p[0], p[1]).unsqueeze(-1).unsqueeze(-1);
  }
  std::unique_ptr<Layer> column(int ways) const override {
    return out_ % ways == 0 ? std::make_unique<Linear>(in_, out_ / ways) : nullptr;
  }
  std::unique_ptr<Layer> row(int ways) const override {
    return in_ % ways == 0 ? std::make_unique<Linear>(in_ / ways, out_) : nullptr;
  }

 private:
  std::int64_t in_, out_;
};

class GroupNorm final : public Layer {
 public:
  GroupNorm(std::int64_t groups, std::int64_t channels) : groups_(groups), channels_(channels) {}
  std::string describe() const override {
    return groups_ == channels_ ? "instancenorm" : "groupnorm " + std::to_string(groups_);
  }
  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {channels_}, Init::ones}, {"bias", {channels_}, Init::zeros}};
  }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor> p) const override {
    // In channels-last memory LibTorch 2.11 writes an input's gradient that nobody asked for, to no
    // address. Nobody may ask where a graph begins.
    return at::group_norm(x[0].is_leaf() ? x[0].contiguous() : x[0], groups_, p[0], p[1]);
  }

 private:
  std::int64_t groups_, channels_;
};

/// PyTorch's BatchNorm2d in eval(): a sample is one frame, so that its own statistics would make
/// another network of it.
class BatchNorm final : public Layer {
 public:
  explicit BatchNorm(std::int64_t channels) : channels_(channels) {}
  std::string describe() const override { return "batchnorm, frozen"; }
  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {channels_}, Init::ones},
            {"bias", {channels_}, Init::zeros},
            {.name = "running_mean", .shape = {channels_}, .init = Init::zeros, .fixed = true},
            {.name = "running_var", .shape = {channels_}, .init = Init::ones, .fixed = true}};
  }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor> p) const override {
    return at::batch_norm(x[0], p[0], p[1], p[2], p[3], /*training=*/false, 0.1, 1e-5,
                          /*cudnn_enabled=*/false);
  }

 private:
  std::int64_t channels_;
};

/// Each pixel asks all pixels: softmax(q k^T / sqrt(d)) v in each head (Vaswani et al. 2017), with
/// a linear layer before (q, k, v) and one after, as Vision Transformers have them.
class Attention final : public Layer {
 public:
  Attention(std::int64_t channels, std::int64_t heads) : channels_(channels), heads_(heads) {}
  std::string describe() const override { return "attention, heads " + std::to_string(heads_); }
  std::vector<ParameterSpec> parameters() const override {
    const std::int64_t c = channels_;
    return {{"qkv.weight", {3 * c, c}, Init::kaiming_uniform, c},
            {"qkv.bias", {3 * c}, Init::fan_in_uniform, c},
            {"proj.weight", {c, c}, Init::kaiming_uniform, c},
            {"proj.bias", {c}, Init::fan_in_uniform, c}};
  }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor> p) const override {
    const std::int64_t pixels = x[0].size(2) * x[0].size(3);
    const at::Tensor qkv = at::linear(x[0].flatten(2).transpose(1, 2), p[0], p[1])
                               .reshape({1, pixels, 3, heads_, channels_ / heads_})
                               .permute({2, 0, 3, 1, 4});
    const at::Tensor seen = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2]);
    return at::linear(seen.transpose(1, 2).reshape({1, pixels, channels_}), p[2], p[3])
        .transpose(1, 2)
        .reshape(x[0].sizes());
  }

 private:
  std::int64_t channels_, heads_;
};

std::unique_ptr<Layer> attention_layer(const LayerSpec& spec, ImageShape& shape,
                                       const ImageShape*) {
  constexpr std::int64_t kMostPixels = 4096;  // every pixel with every other one
  const std::int64_t heads = spec.groups.value_or(1), pixels = shape.height * shape.width;
  if (shape.channels % heads != 0)
    throw std::invalid_argument("groups " + std::to_string(heads) + " must divide its input's " +
                                std::to_string(shape.channels) + " channels");
  if (pixels > kMostPixels)
    throw std::invalid_argument("is for grids of at most " + std::to_string(kMostPixels) + " pixels, not " +
                                std::to_string(shape.width) + "x" + std::to_string(shape.height));
  return std::make_unique<Attention>(shape.channels, heads);
}

std::unique_ptr<Layer> conv_layer(const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
  const std::int64_t kernel = *spec.kernel, out = *spec.out, groups = spec.groups.value_or(1);
  const std::int64_t stride = spec.stride.value_or(1), in = shape.channels;
  if (kernel % 2 == 0)
    throw std::invalid_argument("kernel must be odd, so that padding keeps the size");
  if (in % groups != 0 || out % groups != 0) {
    throw std::invalid_argument("groups " + std::to_string(groups) + " must divide its input's " + std::to_string(in) +
                                " channels and its out");
  }
  shape = {out, (shape.height + stride - 1) / stride, (shape.width + stride - 1) / stride};
  const std::string init = spec.init.value_or("torch");
  if (init != "torch" && init != "he" && init != "zero")
    throw std::invalid_argument("init must be \"torch\", \"he\" or \"zero\"");
  return std::make_unique<Conv>(in, out, kernel, stride, groups,
                                init == "he"     ? Init::he_uniform
                                : init == "zero" ? Init::zeros
                                                 : Init::kaiming_uniform);
}

std::unique_ptr<Layer> transposed_conv(const LayerSpec& spec, ImageShape& shape,
                                       const ImageShape*) {
  const std::int64_t in = shape.channels, factor = spec.factor.value_or(2);
  shape = {*spec.out, shape.height * factor, shape.width * factor};
  return std::make_unique<TransposedConv>(in, shape.channels, factor);
}

std::unique_ptr<Layer> linear_layer(const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
  const std::int64_t in = shape.channels;
  if (shape.height != 1 || shape.width != 1)
    throw std::invalid_argument("linear needs a flatten before it");
  shape.channels = *spec.out;
  return std::make_unique<Linear>(in, shape.channels);
}

}  // namespace

std::unique_ptr<Layer> make_conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                 std::int64_t stride) {
  return std::make_unique<Conv>(in, out, kernel, stride, /*groups=*/1);
}

std::unique_ptr<Layer> make_group_norm(std::int64_t groups, std::int64_t channels) {
  if (channels % groups != 0) {
    throw std::invalid_argument("groups " + std::to_string(groups) + " must divide its input's " +
                                std::to_string(channels) + " channels");
  }
  return std::make_unique<GroupNorm>(groups, channels);
}

std::vector<LayerType> learned_layers() {
  const LayerKey out{"out", "output channels", ""};
  return {
      {"conv",
       "convolution with bias, padded so that stride 1 keeps the size",
       {out,
        {"kernel", "side of its kernel, odd", ""},
        {"stride", "pixels from one output to the next", "1"},
        {"groups", "groups of channels kept apart; as many as channels: depthwise", "1"},
        {"init",
         "initial weights: \"torch\": nn.Conv2d's; \"he\": for a ReLU after it, bias 0; \"zero\"",
         "torch"}},
       conv_layer},
      {"transposed-conv",
       "each pixel becomes a square, learned: factor times as wide and high",
       {out, {"factor", "side of the square", "2"}},
       transposed_conv},
      {"linear", "a matrix times the vector, plus bias; after flatten", {out}, linear_layer},
      {"groupnorm",
       "each group of channels to mean 0 and variance 1, then a learned scale and shift",
       {{"groups", "groups of channels; 1: layer norm", ""}},
       [](const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
         return make_group_norm(*spec.groups, shape.channels);
       }},
      {"batchnorm",
       "with the statistics that its weights file has, which stay as they are; scale and shift "
       "learn",
       {},
       [](const LayerSpec&, ImageShape& shape, const ImageShape*) -> std::unique_ptr<Layer> {
         return std::make_unique<BatchNorm>(shape.channels);
       }},
      {"attention",
       "softmax attention of each pixel to all, with a linear layer before and after; for small "
       "grids",
       {{"groups", "heads: groups of channels that attend apart", "1"}},
       attention_layer},
      {"instancenorm",
       "each channel to mean 0 and variance 1, then a learned scale and shift",
       {},
       [](const LayerSpec&, ImageShape& shape, const ImageShape*) {
         return make_group_norm(shape.channels, shape.channels);
       }}};
}

}  // namespace millrace::stages
