// A layer of your own, with a key of its own: [[model.layer]] type = "scale", start = 0.5.
#include <millrace/plugin.h>

#include <ATen/ATen.h>

namespace {

using namespace millrace;
using Number = stages::LayerKey::Number;

class Scale final : public stages::Layer {
 public:
  Scale(std::int64_t channels, double start) : channels_(channels), start_(start) {}
  std::string describe() const override { return "scale " + std::to_string(channels_); }
  std::vector<stages::ParameterSpec> parameters() const override {
    return {{.name = "weight",
             .shape = {1, channels_, 1, 1},
             .given = at::full({1, channels_, 1, 1}, start_)}};
  }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor> p) const override {
    return x[0] * p[0];
  }

 private:
  std::int64_t channels_;
  double start_;
};

void fill(Plugin& plugin) {
  plugin.layers.push_back({.name = "scale",
                           .summary = "a learned factor per channel",
                           .keys = {{"start", "the factors' initial value", Number{}, 1.0}},
                           .make = [](const stages::LayerSpec& spec, stages::ImageShape& shape,
                                      const stages::ImageShape*) -> std::unique_ptr<stages::Layer> {
                             return std::make_unique<Scale>(shape.channels, spec.number("start"));
                           }});
}

}  // namespace

MILLRACE_PLUGIN(fill)
