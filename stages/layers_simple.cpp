// Layers without parameters: activations, pooling, resampling, joins.
#include <ATen/ATen.h>

#include <stdexcept>

#include "stages/layers.h"

namespace millrace::stages {
namespace {

using std::to_string;

std::unique_ptr<Layer> by_channel(std::string text,
                                  std::function<at::Tensor(const at::Tensor& x)> function) {
  return layer_of(
      {.text = std::move(text),
       .of = [function = std::move(function)](Values x, Values) { return function(x[0]); },
       .by_channel = true});
}

std::string size_text(const ImageShape& shape) {
  return to_string(shape.width) + "x" + to_string(shape.height);
}

std::unique_ptr<Layer> make_flatten(const LayerSpec&, ImageShape& shape, const ImageShape*) {
  if (shape.height == 0 || shape.width == 0) {
    throw std::invalid_argument("flatten needs source.width and source.height to be set");
  }
  shape = {shape.elements(), 1, 1};
  return by_channel("flatten", [](const at::Tensor& x) {
    return x.reshape({x.size(0), -1, 1, 1});
  });
}

std::unique_ptr<Layer> make_pool(const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
  const std::int64_t k = spec.whole("kernel");
  if ((shape.height && shape.height < k) || (shape.width && shape.width < k)) {
    throw std::invalid_argument("kernel " + to_string(k) + " is larger than its input " +
                                size_text(shape));
  }
  shape.height /= k;
  shape.width /= k;
  return by_channel(spec.type + " " + to_string(k),
                    [k, largest = spec.type == "maxpool"](const at::Tensor& x) {
                      return largest ? at::max_pool2d(x, k) : at::avg_pool2d(x, k);
                    });
}

std::unique_ptr<Layer> make_upsample(const LayerSpec& spec, ImageShape& shape, const ImageShape*) {
  const std::int64_t factor = spec.whole("factor");
  const bool bilinear = spec.text("kind") == "bilinear";
  shape.height *= factor;
  shape.width *= factor;
  return by_channel("upsample " + to_string(factor) + (bilinear ? " bilinear" : ""),
                    [=](const at::Tensor& x) {
                      const std::int64_t size[] = {x.size(2) * factor, x.size(3) * factor};
                      return bilinear ? at::upsample_bilinear2d(x, size, /*align_corners=*/false)
                                      : at::upsample_nearest2d(x, size);
                    });
}

std::unique_ptr<Layer> make_pixel_shuffle(const LayerSpec& spec, ImageShape& shape,
                                          const ImageShape*) {
  const std::int64_t factor = spec.whole("factor");
  if (shape.channels % (factor * factor) != 0) {
    throw std::invalid_argument("pixel-shuffle by " + to_string(factor) +
                                " needs channels in multiples of " + to_string(factor * factor) +
                                ", its input has " + to_string(shape.channels));
  }
  shape = {shape.channels / (factor * factor), shape.height * factor, shape.width * factor};
  return layer_of({.text = "pixel-shuffle " + to_string(factor),
                   .of = [=](Values x, Values) { return at::pixel_shuffle(x[0], factor); }});
}

/// A skip connection: joins the previous module's output with an earlier one's, across any cuts.
std::unique_ptr<Layer> make_join(const LayerSpec& spec, ImageShape& shape,
                                 const ImageShape* joined) {
  const bool add = spec.type == "add";
  const std::int64_t from = spec.whole("from");
  if (joined->height != shape.height || joined->width != shape.width) {
    throw std::invalid_argument("joins " + size_text(shape) + " with module " + to_string(from) +
                                "'s " + size_text(*joined) + ": sizes must be equal");
  }
  if (add && joined->channels != shape.channels) {
    throw std::invalid_argument("adds " + to_string(shape.channels) + " channels to module " +
                                to_string(from) + "'s " + to_string(joined->channels));
  }
  if (!add) shape.channels += joined->channels;
  return layer_of({.text = spec.type + " from " + (from < 0 ? "sample" : to_string(from)),
                   .of = [=](Values x, Values) {
                     return add ? x[0] + x[1] : at::cat({x[0], x[1]}, 1);
                   }});
}

template <auto function>
std::unique_ptr<Layer> pointwise(const LayerSpec& spec, ImageShape&, const ImageShape*) {
  return by_channel(spec.type, function);
}

/// A function of the key `slope`, too.
template <auto function>
std::unique_ptr<Layer> sloped(const LayerSpec& spec, ImageShape&, const ImageShape*) {
  return by_channel(spec.type, [slope = spec.number("slope")](const at::Tensor& x) {
    return function(x, slope);
  });
}

}  // namespace

at::Tensor latest_frame(const at::Tensor& sample, std::int64_t channels) {
  return sample.narrow(1, sample.size(1) - channels, channels);
}

std::unique_ptr<Layer> make_change(std::int64_t channels) {
  return layer_of({.text = "add to the last frame",
                   .of = [=](Values x, Values) { return x[0] + latest_frame(x[1], channels); }});
}

std::vector<LayerType> simple_layers() {
  const LayerKey side{"kernel", "side of the squares, which do not overlap", LayerKey::Whole{1, 63},
                      2};
  const LayerKey from{"from", "the earlier module that it joins; -1: the sample",
                      LayerKey::Whole{-1, 65536}};
  return {
      {"flatten", "[1,C,H,W] to [1,CHW,1,1]; sizes must be set", {}, make_flatten},
      {"maxpool", "the maximum of each square", {side}, make_pool},
      {"avgpool", "the mean of each square", {side}, make_pool},
      {"upsample",
       "factor times as wide and high",
       {{"factor", "by how much", LayerKey::Whole{1, 64}, 2},
        {"kind", "\"nearest\" or \"bilinear\" (as align_corners=False)",
         LayerKey::Names{"nearest", "bilinear"}, "nearest"}},
       make_upsample},
      {"pixel-shuffle",
       "channels to pixels: factor^2 C channels become C, factor times as wide and high",
       {{"factor", "by how much", LayerKey::Whole{1, 64}}},
       make_pixel_shuffle},
      {"relu", "max(x, 0)", {}, pointwise<at::relu>},
      {"leaky-relu",
       "x, or slope x below 0",
       {{"slope", "below 0", LayerKey::Number{}, 0.01}},
       sloped<at::leaky_relu>},
      {"multiply",
       "slope x",
       {{"slope", "the factor", LayerKey::Number{}}},
       sloped<[](const at::Tensor& x, double slope) { return x * slope; }>},
      {"gelu",
       "x times the normal distribution's share below x",
       {},
       pointwise<[](const at::Tensor& x) { return at::gelu(x); }>},
      {"silu", "x sigmoid(x)", {}, pointwise<at::silu>},
      {"tanh", "tanh(x), from -1 to 1", {}, pointwise<at::tanh>},
      {"sigmoid", "1 / (1 + exp(-x)), from 0 to 1", {}, pointwise<at::sigmoid>},
      {"dropout",
       "nothing, as PyTorch's in eval(): keeps its place in the numbering",
       {},  // a view, since each module returns its own tensor
       pointwise<[](const at::Tensor& x) { return x.view(x.sizes()); }>},
      {"add", "its input plus what an earlier module gives", {from}, make_join},
      {"concat", "the channels of its input, then those of an earlier module", {from}, make_join}};
}

}  // namespace millrace::stages
