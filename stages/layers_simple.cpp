// Layers that are one operator: convolution, linear, activations, pooling, resampling, norm, joins.
#include <ATen/ATen.h>  // operators

#include <algorithm>  // find
#include <map>        // the table of types
#include <stdexcept>  // std::invalid_argument

#include "stages/layers.h"

namespace millrace::stages {
namespace {

std::string text(std::int64_t n) {
  return std::to_string(n);
}

class Conv final : public Layer {
 public:
  Conv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride)
      : in_(in), out_(out), kernel_(kernel), stride_(stride) {}
  std::string describe() const override {
    return "conv " + text(in_) + "->" + text(out_) + " k" + text(kernel_) +
           (stride_ > 1 ? " s" + text(stride_) : "");
  }
  std::vector<ParameterSpec> parameters() const override {
    const std::int64_t fan_in = in_ * kernel_ * kernel_;
    return {{"weight", {out_, in_, kernel_, kernel_}, Init::kaiming_uniform, fan_in},
            {"bias", {out_}, Init::fan_in_uniform, fan_in}};
  }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor> p) const override {
    return at::conv2d(x[0], p[0], p[1], stride_, kernel_ / 2);
  }

 private:
  std::int64_t in_, out_, kernel_, stride_;
};

class Linear final : public Layer {
 public:
  Linear(std::int64_t in, std::int64_t out) : in_(in), out_(out) {}
  std::string describe() const override { return "linear " + text(in_) + "->" + text(out_); }
  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {out_, in_}, Init::kaiming_uniform, in_},
            {"bias", {out_}, Init::fan_in_uniform, in_}};
  }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor> p) const override {
    // A vector is a picture of one pixel, so that any layer may follow.
    return at::linear(x[0].flatten(1), p[0], p[1]).unsqueeze(-1).unsqueeze(-1);
  }

 private:
  std::int64_t in_, out_;
};

class GroupNorm final : public Layer {
 public:
  GroupNorm(std::int64_t groups, std::int64_t channels) : groups_(groups), channels_(channels) {}
  std::string describe() const override { return "groupnorm " + text(groups_); }
  std::vector<ParameterSpec> parameters() const override {
    return {{"weight", {channels_}, Init::ones}, {"bias", {channels_}, Init::zeros}};
  }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor> p) const override {
    return at::group_norm(x[0], groups_, p[0], p[1]);
  }

 private:
  std::int64_t groups_, channels_;
};

/// A layer without parameters, given by its operator.
class Operator final : public Layer {
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

/// Joins what the module before gives with what an earlier one gave: a connection that skips what
/// lies between, whatever stages that is in.
class Join final : public Layer {
 public:
  Join(bool add, std::int64_t from) : add_(add), from_(from) {}
  std::string describe() const override {
    return (add_ ? "add from " : "concat from ") + (from_ < 0 ? "sample" : text(from_));
  }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor>) const override {
    return add_ ? x[0] + x[1] : at::cat({x[0], x[1]}, 1);
  }

 private:
  bool add_;
  std::int64_t from_;
};

std::int64_t need(const std::optional<std::int64_t>& value, const char* key) {
  if (!value) throw std::invalid_argument(std::string("needs ") + key);
  return *value;
}

std::int64_t same_padding_kernel(const LayerSpec& spec) {
  const std::int64_t kernel = need(spec.kernel, "kernel");
  if (kernel % 2 == 0)
    throw std::invalid_argument("kernel must be odd, so that padding keeps the size");
  return kernel;
}

std::unique_ptr<Layer> conv_layer(const LayerSpec& spec, ImageShape& shape) {
  const std::int64_t kernel = same_padding_kernel(spec), out = need(spec.out, "out");
  const std::int64_t stride = spec.stride.value_or(1), in = shape.channels;
  shape = {out, (shape.height + stride - 1) / stride, (shape.width + stride - 1) / stride};
  return make_conv(in, out, kernel, stride);
}

std::unique_ptr<Layer> make_linear(const LayerSpec& spec, ImageShape& shape) {
  const std::int64_t in = shape.channels;
  if (shape.height != 1 || shape.width != 1) {
    throw std::invalid_argument("linear needs a flatten before it");
  }
  shape.channels = need(spec.out, "out");
  return std::make_unique<Linear>(in, shape.channels);
}

std::unique_ptr<Layer> make_flatten(const LayerSpec&, ImageShape& shape) {
  if (shape.height == 0 || shape.width == 0) {
    throw std::invalid_argument("flatten needs source.width and source.height to be set");
  }
  shape = {shape.channels * shape.height * shape.width, 1, 1};
  return std::make_unique<Operator>("flatten", [](const at::Tensor& x, double) {
    return x.reshape({x.size(0), -1, 1, 1});
  });
}

std::unique_ptr<Layer> group_norm_layer(const LayerSpec& spec, ImageShape& shape) {
  return make_group_norm(need(spec.groups, "groups"), shape.channels);
}

std::unique_ptr<Layer> make_pool(const LayerSpec& spec, ImageShape& shape) {
  const std::int64_t k = spec.kernel.value_or(2);
  if ((shape.height && shape.height < k) || (shape.width && shape.width < k)) {
    throw std::invalid_argument("kernel " + text(k) + " is larger than its input " +
                                text(shape.width) + "x" + text(shape.height));
  }
  shape.height /= k;
  shape.width /= k;
  const auto function =
      spec.type == "maxpool"
          ? [](const at::Tensor& x, double k) { return at::max_pool2d(x, std::int64_t(k)); }
          : [](const at::Tensor& x, double k) { return at::avg_pool2d(x, std::int64_t(k)); };
  return std::make_unique<Operator>(spec.type + " " + text(k), function, double(k));
}

std::unique_ptr<Layer> make_upsample(const LayerSpec& spec, ImageShape& shape) {
  const std::int64_t factor = spec.factor.value_or(2);
  shape.height *= factor;
  shape.width *= factor;
  return std::make_unique<Operator>(
      "upsample " + text(factor),
      [](const at::Tensor& x, double f) {
        return at::upsample_nearest2d(x,
                                      {x.size(2) * std::int64_t(f), x.size(3) * std::int64_t(f)});
      },
      double(factor));
}

std::unique_ptr<Layer> make_pixel_shuffle(const LayerSpec& spec, ImageShape& shape) {
  const std::int64_t factor = need(spec.factor, "factor");
  if (shape.channels % (factor * factor) != 0) {
    throw std::invalid_argument("pixel-shuffle by " + text(factor) +
                                " needs channels in multiples of " + text(factor * factor) +
                                ", its input has " + text(shape.channels));
  }
  shape = {shape.channels / (factor * factor), shape.height * factor, shape.width * factor};
  return std::make_unique<Operator>(
      "pixel-shuffle " + text(factor),
      [](const at::Tensor& x, double f) { return at::pixel_shuffle(x, std::int64_t(f)); },
      double(factor));
}

std::unique_ptr<Layer> make_activation(const LayerSpec& spec, ImageShape&) {
  static const std::map<std::string, Operator::Function> functions = {
      {"relu", [](const at::Tensor& x, double) { return at::relu(x); }},
      {"leaky-relu", [](const at::Tensor& x, double slope) { return at::leaky_relu(x, slope); }},
      {"gelu", [](const at::Tensor& x, double) { return at::gelu(x); }},
      {"tanh", [](const at::Tensor& x, double) { return at::tanh(x); }},
      {"sigmoid", [](const at::Tensor& x, double) { return at::sigmoid(x); }}};
  return std::make_unique<Operator>(spec.type, functions.at(spec.type), spec.slope.value_or(0.01));
}

std::unique_ptr<Layer> make_residual(const LayerSpec& spec, ImageShape& shape) {
  return make_residual_block(spec.type == "bottleneck", need(spec.out, "out"),
                             spec.stride.value_or(1), shape);
}

std::unique_ptr<Layer> make_join(const LayerSpec& spec, ImageShape& shape,
                                 const ImageShape& joined) {
  const auto sized = [](const ImageShape& s) { return text(s.width) + "x" + text(s.height); };
  if (joined.height != shape.height || joined.width != shape.width) {
    throw std::invalid_argument("joins " + sized(shape) + " with module " + text(*spec.from) +
                                "'s " + sized(joined) + ": sizes must be equal");
  }
  const bool add = spec.type == "add";
  if (add && joined.channels != shape.channels) {
    throw std::invalid_argument("adds " + text(shape.channels) + " channels to module " +
                                text(*spec.from) + "'s " + text(joined.channels));
  }
  if (!add) shape.channels += joined.channels;
  return std::make_unique<Join>(add, *spec.from);
}

using Maker = std::unique_ptr<Layer> (*)(const LayerSpec&, ImageShape&);

/// A layer's type: how it is made, null where it joins two modules, and the keys it takes.
struct Kind {
  Maker make;
  std::vector<std::string> keys;
};

const std::map<std::string, Kind>& kinds() {
  static const std::map<std::string, Kind> table = {
      {"conv", {conv_layer, {"out", "kernel", "stride"}}},
      {"linear", {make_linear, {"out"}}},
      {"flatten", {make_flatten, {}}},
      {"groupnorm", {group_norm_layer, {"groups"}}},
      {"maxpool", {make_pool, {"kernel"}}},
      {"avgpool", {make_pool, {"kernel"}}},
      {"upsample", {make_upsample, {"factor"}}},
      {"pixel-shuffle", {make_pixel_shuffle, {"factor"}}},
      {"relu", {make_activation, {}}},
      {"leaky-relu", {make_activation, {"slope"}}},
      {"gelu", {make_activation, {}}},
      {"tanh", {make_activation, {}}},
      {"sigmoid", {make_activation, {}}},
      {"basic-block", {make_residual, {"out", "stride"}}},
      {"bottleneck", {make_residual, {"out", "stride"}}},
      {"add", {nullptr, {"from"}}},
      {"concat", {nullptr, {"from"}}}};
  return table;
}

}  // namespace

std::unique_ptr<Layer> make_conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                 std::int64_t stride) {
  return std::make_unique<Conv>(in, out, kernel, stride);
}

std::unique_ptr<Layer> make_group_norm(std::int64_t groups, std::int64_t channels) {
  if (channels % groups != 0) {
    throw std::invalid_argument("groups " + text(groups) + " must divide its input's " +
                                text(channels) + " channels");
  }
  return std::make_unique<GroupNorm>(groups, channels);
}

namespace {

/// Refuses a key that layers of this type have no use for.
void require_keys(const LayerSpec& spec, const std::vector<std::string>& taken) {
  const std::pair<const char*, bool> given[] = {
      {"out", spec.out.has_value()},       {"kernel", spec.kernel.has_value()},
      {"stride", spec.stride.has_value()}, {"groups", spec.groups.has_value()},
      {"factor", spec.factor.has_value()}, {"slope", spec.slope.has_value()},
      {"from", spec.from.has_value()}};
  for (const auto& [key, there] : given) {
    if (!there || std::find(taken.begin(), taken.end(), key) != taken.end()) continue;
    std::string list;
    for (const std::string& name : taken) list += (list.empty() ? "" : ", ") + name;
    throw std::invalid_argument("takes no " + std::string(key) + " (it takes " +
                                (list.empty() ? "none" : list) + ")");
  }
}

}  // namespace

std::unique_ptr<Layer> make_layer(const LayerSpec& spec, ImageShape& shape,
                                  const ImageShape* joined) {
  const auto kind = kinds().find(spec.type);
  if (kind == kinds().end()) throw std::invalid_argument("unknown type \"" + spec.type + "\"");
  require_keys(spec, kind->second.keys);
  if (kind->second.make) return kind->second.make(spec, shape);
  need(spec.from, "from");
  if (!joined) throw std::invalid_argument("from must name an earlier module, or -1: the sample");
  return make_join(spec, shape, *joined);
}

const std::vector<std::string>& layer_types() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, kind] : kinds()) list.push_back(name);
    return list;
  }();
  return names;
}

}  // namespace millrace::stages
