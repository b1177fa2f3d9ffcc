// A layer of your own: [[model.layer]] type = "scale", a learned factor per channel.
#include <millrace/plugin.h>

#include <ATen/ATen.h>

namespace {

using namespace millrace;

class Scale final : public stages::Layer {
 public:
  explicit Scale(std::int64_t channels) : channels_(channels) {}
  std::string describe() const override { return "scale " + std::to_string(channels_); }
  std::vector<stages::ParameterSpec> parameters() const override {
    return {{"weight", {1, channels_, 1, 1}, stages::Init::ones}};
  }
  at::Tensor forward(std::span<const at::Tensor> x, std::span<const at::Tensor> p) const override {
    return x[0] * p[0];
  }

 private:
  std::int64_t channels_;
};

void fill(Plugin& plugin) {
  plugin.layers.push_back({.name = "scale",
                           .summary = "a learned factor per channel",
                           .keys = {},
                           .make = [](const stages::LayerSpec&, stages::ImageShape& shape,
                                      const stages::ImageShape*) -> std::unique_ptr<stages::Layer> {
                             return std::make_unique<Scale>(shape.channels);
                           }});
}

}  // namespace

MILLRACE_PLUGIN(fill)
