#include "stages/rate_schedule.h"

#include <cmath>
#include <numbers>

namespace millrace::stages {

double scheduled_rate(const OptimizerSpec& spec, std::int64_t updates) {
  const std::int64_t after = updates - spec.warmup;
  if (after < 0) {
    return spec.start_factor + (1 - spec.start_factor) * double(updates) / double(spec.warmup);
  }
  if (spec.schedule == "step") return std::pow(spec.gamma, double(after / spec.step_size));
  if (spec.schedule != "cosine" || spec.lr <= 0) return 1;
  const double wave = (1 + std::cos(std::numbers::pi * double(after) / double(spec.T_max))) / 2;
  return (spec.eta_min + (spec.lr - spec.eta_min) * wave) / spec.lr;
}

bool is_constant(const OptimizerSpec& spec) {
  return spec.schedule == "constant" && spec.warmup == 0;
}

}  // namespace millrace::stages
