// Layers without parameters: activations, pooling, resampling, joins.
#include <ATen/ATen.h>

#include <stdexcept>

#include "stages/layers.h"
#include "stages/splittable.h"

namespace millrace::stages {
namespace {

/// A layer without parameters, given by its operator.
class Operator : public Layer {
 public:
  using Function = at::Tensor (*)(const at::Tensor&, double);
  Operator(std::string name, Function function, double argument = 0)
      : name_(std::move(name)), function_(function), argument_(argument) {}
  std::string describe() const override { return name_; }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor>) const override {
    return function_(x[0], argument_);
  }

 private:
  std::string name_;
  Function function_;
  double argument_;
};

/// One that treats each channel alone. Flattened channels follow one another.
class ChannelOperator final : public Operator, public ByChannel {
  using Operator::Operator;
};

/// Joins what the module before gives with what an earlier one gave: a connection that skips what
/// lies between, whatever stages that is in.
class Join final : public Layer {
 public:
  Join(bool add, std::int64_t from) : add_(add), from_(from) {}
  std::string describe() const override {
    return (add_ ? "add from " : "concat from ") + (from_ < 0 ? "sample" : std::to_string(from_));
  }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor>) const override {
    return add_ ? x[0] + x[1] : at::cat({x[0], x[1]}, 1);
  }

 private:
  bool add_;
  std::int64_t from_;
};

/// The change to a sample's latest frame, added to that frame.
class AddToLastFrame final : public Layer {
 public:
  explicit AddToLastFrame(std::int64_t channels) : channels_(channels) {}
  std::string describe() const override { return "add to the last frame"; }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor>) const override {
    return x[0] + latest_frame(x[1], channels_);
  }

 private:
  std::int64_t channels_;
};

std::unique_ptr<Layer> make_flatten(const LayerSpec&, ImageShape& shape, const ImageShape*) {
  if (shape.height == 0 || shape.width == 0) {
    throw std::invalid_argument("flatten needs source.width and source.height to be set");
  }
  shape = {shape.channels * shape.height * shape.width, 1, 1};
  return std::make_unique<ChannelOperator>("flatten", [](const at::Tensor& x, double) {
    return x.reshape({x.size(0), -1, 1, 1});
  });
}

std::unique_ptr<Layer> make_pool(const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
  const std::int64_t k = spec.kernel.value_or(2);
  if ((shape.height && shape.height < k) || (shape.width && shape.width < k)) {
    throw std::invalid_argument("kernel " + std::to_string(k) + " is larger than its input " +
                                std::to_string(shape.width) + "x" + std::to_string(shape.height));
  }
  shape.height /= k;
  shape.width /= k;
  const auto function =
      spec.type == "maxpool"
          ? [](const at::Tensor& x, double k) { return at::max_pool2d(x, std::int64_t(k)); }
          : [](const at::Tensor& x, double k) { return at::avg_pool2d(x, std::int64_t(k)); };
  return std::make_unique<ChannelOperator>(spec.type + " " + std::to_string(k), function, double(k));
}

std::unique_ptr<Layer> make_upsample(const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
  const std::int64_t factor = spec.factor.value_or(2);
  const std::string kind = spec.kind.value_or("nearest");
  if (kind != "nearest" && kind != "bilinear")
    throw std::invalid_argument("kind must be \"nearest\" or \"bilinear\"");
  shape.height *= factor;
  shape.width *= factor;
  if (kind == "bilinear") {
    return std::make_unique<ChannelOperator>(
        "upsample " + std::to_string(factor) + " bilinear",
        [](const at::Tensor& x, double f) {
          return at::upsample_bilinear2d(x,
                                         {x.size(2) * std::int64_t(f), x.size(3) * std::int64_t(f)},
                                         /*align_corners=*/false);
        },
        double(factor));
  }
  return std::make_unique<ChannelOperator>(
      "upsample " + std::to_string(factor),
      [](const at::Tensor& x, double f) {
        return at::upsample_nearest2d(x,
                                      {x.size(2) * std::int64_t(f), x.size(3) * std::int64_t(f)});
      },
      double(factor));
}

std::unique_ptr<Layer> make_pixel_shuffle(const LayerSpec& spec, ImageShape& shape,
                                          const ImageShape*) {
  const std::int64_t factor = *spec.factor;
  if (shape.channels % (factor * factor) != 0) {
    throw std::invalid_argument("pixel-shuffle by " + std::to_string(factor) +
                                " needs channels in multiples of " + std::to_string(factor * factor) +
                                ", its input has " + std::to_string(shape.channels));
  }
  shape = {shape.channels / (factor * factor), shape.height * factor, shape.width * factor};
  return std::make_unique<Operator>(
      "pixel-shuffle " + std::to_string(factor),
      [](const at::Tensor& x, double f) { return at::pixel_shuffle(x, std::int64_t(f)); },
      double(factor));
}

std::unique_ptr<Layer> make_join(const LayerSpec& spec, ImageShape& shape,
                                 const ImageShape* joined) {
  const auto sized = [](const ImageShape& s) { return std::to_string(s.width) + "x" + std::to_string(s.height); };
  if (joined->height != shape.height || joined->width != shape.width) {
    throw std::invalid_argument("joins " + sized(shape) + " with module " + std::to_string(*spec.from) +
                                "'s " + sized(*joined) + ": sizes must be equal");
  }
  const bool add = spec.type == "add";
  if (add && joined->channels != shape.channels) {
    throw std::invalid_argument("adds " + std::to_string(shape.channels) + " channels to module " +
                                std::to_string(*spec.from) + "'s " + std::to_string(joined->channels));
  }
  if (!add) shape.channels += joined->channels;
  return std::make_unique<Join>(add, *spec.from);
}

template <at::Tensor (*Function)(const at::Tensor&)>
std::unique_ptr<Layer> pointwise(const LayerSpec& spec, ImageShape&, const ImageShape*) {
  return std::make_unique<ChannelOperator>(spec.type,
                                           [](const at::Tensor& x, double) { return Function(x); });
}

std::unique_ptr<Layer> leaky_relu(const LayerSpec& spec, ImageShape&, const ImageShape*) {
  return std::make_unique<ChannelOperator>(
      spec.type, [](const at::Tensor& x, double slope) { return at::leaky_relu(x, slope); },
      spec.slope.value_or(0.01));
}

std::unique_ptr<Layer> make_multiply(const LayerSpec& spec, ImageShape&, const ImageShape*) {
  return std::make_unique<ChannelOperator>(
      spec.type, [](const at::Tensor& x, double slope) { return x * slope; }, *spec.slope);
}

/// A view: each module gives a tensor of its own.
at::Tensor same(const at::Tensor& x) {
  return x.view(x.sizes());
}

at::Tensor gelu(const at::Tensor& x) {
  return at::gelu(x);
}

}  // namespace

at::Tensor latest_frame(const at::Tensor& sample, std::int64_t channels) {
  return sample.narrow(1, sample.size(1) - channels, channels);
}

std::unique_ptr<Layer> make_change(std::int64_t channels) {
  return std::make_unique<AddToLastFrame>(channels);
}

std::vector<LayerType> simple_layers() {
  const LayerKey side{"kernel", "side of the squares, which do not overlap", "2"};
  const LayerKey from{"from", "the earlier module that it joins; -1: the sample", ""};
  return {
      {"flatten", "[1,C,H,W] to [1,CHW,1,1]; sizes must be set", {}, make_flatten},
      {"maxpool", "the maximum of each square", {side}, make_pool},
      {"avgpool", "the mean of each square", {side}, make_pool},
      {"upsample",
       "factor times as wide and high",
       {{"factor", "by how much", "2"},
        {"kind", "\"nearest\" or \"bilinear\" (as align_corners=False)", "nearest"}},
       make_upsample},
      {"pixel-shuffle",
       "channels to pixels: factor^2 C channels become C, factor times as wide and high",
       {{"factor", "by how much", ""}},
       make_pixel_shuffle},
      {"relu", "max(x, 0)", {}, pointwise<at::relu>},
      {"leaky-relu", "x, or slope x below 0", {{"slope", "below 0", "0.01"}}, leaky_relu},
      {"multiply", "slope x", {{"slope", "the factor", ""}}, make_multiply},
      {"gelu", "x times the normal distribution's share below x", {}, pointwise<gelu>},
      {"silu", "x sigmoid(x)", {}, pointwise<at::silu>},
      {"tanh", "tanh(x), from -1 to 1", {}, pointwise<at::tanh>},
      {"sigmoid", "1 / (1 + exp(-x)), from 0 to 1", {}, pointwise<at::sigmoid>},
      {"dropout",
       "nothing, as PyTorch's in eval(): keeps its place in the numbering",
       {},
       pointwise<same>},
      {"add", "its input plus what an earlier module gives", {from}, make_join},
      {"concat", "the channels of its input, then those of an earlier module", {from}, make_join}};
}

}  // namespace millrace::stages
