#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "stages/optimizer.h"
#include "tests/capture/program/operators.h"

namespace millrace::program {
namespace {

/// What one update is of.
struct Updated {
  Updated(const stages::OptimizerSpec& spec, const std::string& kind, c10::Device device,
          c10::ScalarType type, const Tensor& initial)
      : weights(initial.to(device, type, false, true)),
        gradient(at::zeros_like(weights)),
        rate(at::full({}, 0.5, at::TensorOptions(device).dtype(at::kDouble))),
        skipped(at::zeros({}, weights.options())),
        optimizer(spec, weights),
        correction(stages::make_correction({.kind = kind}, {.frames = 2, .updates = 2}, weights,
                                           weights.numel())) {}
  Tensor update() {
    return optimizer.update(weights, weights, gradient, 2, rate, skipped, {},
                            correction ? &*correction : nullptr);
  }
  Tensors all() const {
    Tensors made = {weights, skipped};
    for (const Tensor& t : optimizer.buffers()) made.push_back(t);
    for (const Tensor& t : correction ? correction->memory() : stages::Memory()) made.push_back(t);
    return made;
  }
  Tensor weights, gradient, rate, skipped;
  stages::Optimizer optimizer;
  std::optional<stages::Correction> correction;
};

Tensors update_as_in_double(const stages::OptimizerSpec& spec, const std::string& kind,
                            std::int64_t count, c10::Device device, const ProgramOptions& options) {
  Random random{std::uint64_t(count)};
  const Tensor initial = random.numbers({count});
  Updated there(spec, kind, device, at::kFloat, initial),
      here(spec, kind, at::kCPU, at::kDouble, initial),
      in_float(spec, kind, at::kCPU, at::kFloat, initial);
  Arena arena(device);
  Tensor finite;
  Program program([&] { finite = there.update(); }, arena, options);
  EXPECT_EQ(program.operations().size(), 1u);
  EXPECT_EQ(left_to_libtorch(program.operations()), std::set<std::string>());
  there.skipped.zero_();
  for (int step = 0; step < 8; ++step) {
    const Tensor gradient = random.numbers({count});
    if (step == 3) gradient[count - 1] = NAN;
    if (step == 5) gradient[random.up_to(int(count)) - 1] = random.flip() ? INFINITY : -INFINITY;
    there.gradient.copy_(gradient);
    here.gradient.copy_(gradient);
    in_float.gradient.copy_(gradient);
    program.run();
    in_float.update();
    EXPECT_EQ(finite.item<bool>(), here.update().item<bool>());
  }
  const Tensors got = there.all(), wanted = here.all(), as_float = in_float.all();
  const double rounding = 3e-7 * here.weights.norm().item<double>();  // of weights, told apart
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].is_floating_point()) {
      const auto off = [&](const Tensor& made) {
        return (made.cpu().to(at::kDouble) - wanted[i]).norm().item<double>();
      };
      // No worse than LibTorch's operators in float32, whose gaps are differences of weights, too.
      const double most = 2e-6 * wanted[i].norm().item<double>() + 2 * off(as_float[i]);
      EXPECT_LT(off(got[i]), most + rounding) << i;
    } else {
      EXPECT_TRUE(at::equal(got[i].cpu(), wanted[i])) << i;
    }
  }
  return got;
}

}  // namespace

Tensors expect_updates_as_in_double(c10::Device device, const ProgramOptions& options) {
  const c10::NoGradGuard no_grad;
  Tensors all;
  for (const std::string& kind : stages::optimizer_names()) {
    for (const double momentum : {0.0, 0.9}) {
      if (momentum != 0 && kind != "sgd" && kind != "rmsprop") continue;
      for (const std::string& correction : stages::correction_names()) {
        SCOPED_TRACE(kind + ", momentum " + std::to_string(momentum) + ", " + correction);
        const stages::OptimizerSpec spec{.kind = kind,
                                         .lr = 1e-2,
                                         .momentum = momentum,
                                         .weight_decay = 0.01,
                                         .clip = kind == "adam" ? 0.5 : 0,
                                         .spike_delay = momentum != 0 ? 2 : 0};
        for (const std::int64_t count : {3, 5000}) {
          const Tensors left = update_as_in_double(spec, correction, count, device, options);
          all.insert(all.end(), left.begin(), left.end());
        }
      }
    }
  }
  return all;
}

}  // namespace millrace::program
