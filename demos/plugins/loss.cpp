// A loss of your own: task.loss = "charbonnier", a smooth absolute error.
#include <millrace/plugin.h>

#include <ATen/ATen.h>

#include <cmath>

namespace {

constexpr float kSmooth = 1e-3f;

at::Tensor charbonnier(const at::Tensor& prediction, const at::Tensor& target,
                       const millrace::LossTerm&) {
  return ((prediction - target).square() + kSmooth * kSmooth).sqrt().mean();
}

float element(float prediction, float target) {
  return std::hypot(prediction - target, kSmooth);
}

void fill(millrace::Plugin& plugin) {
  plugin.losses.push_back(
      {"charbonnier", "smooth absolute error, mean over all elements", charbonnier, element});
}

}  // namespace

MILLRACE_PLUGIN(fill)
