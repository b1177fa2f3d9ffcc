#include "engine/plan/profile.h"

#include <algorithm>
#include <cmath>

namespace millrace::engine::plan {
namespace {

std::string place(const Profile& profile, std::size_t index) {
  return "module " + std::to_string(index) + " (" + profile.modules[index].name + ")";
}

void check_number(double value, const std::string& where, const std::string& field) {
  if (!std::isfinite(value)) throw ProfileError(where + ": " + field + " is not a number");
  if (value < 0) throw ProfileError(where + ": " + field + " is negative");
  if (value > 1e15) throw ProfileError(where + ": " + field + " is above 1e15");
}

void check_module(const ModuleProfile& module, const std::string& where) {
  for (const auto& [field, time] : kTimes) {
    check_number((module.*time).median, where, field);
    check_number((module.*time).spread, where, std::string(field) + "'s spread");
  }
  for (const auto& [field, size] : kSizes) check_number(module.bytes.*size, where, field);
  check_number(module.tensor_bytes, where, "tensor_bytes");
  check_number(module.tensor_gradient_bytes, where, "tensor_gradient_bytes");
  for (const auto& [ways, ms] : module.parts) {
    if (ways < 2) throw ProfileError(where + ": tensor_ms of " + std::to_string(ways) + " parts");
    for (const double part : {ms.forward, ms.input_gradient, ms.weight_gradient, ms.update})
      check_number(part, where, "tensor_ms");
  }
  if (module.tensor_ways < 1) throw ProfileError(where + ": tensor_ways is less than 1");
}

void check_threads(const std::vector<double>& speedup) {
  if (speedup.empty() || speedup.front() != 1.0) {
    throw ProfileError("thread_speedup: its first value, one core's, must be 1");
  }
  for (std::size_t i = 0; i < speedup.size(); ++i) {
    if (!std::isfinite(speedup[i]) || speedup[i] <= 0) {
      throw ProfileError("thread_speedup: the value for " + std::to_string(i + 1) +
                         " cores is not positive");
    }
  }
}

}  // namespace

std::vector<double> speeds_that_help(const std::vector<Measured>& speeds) {
  std::vector<double> helpful = {1.0};
  for (std::size_t i = 1; i < speeds.size(); ++i) {
    if (!(speeds[i].median - speeds[i].spread > helpful.back())) break;
    helpful.push_back(speeds[i].median);
  }
  return helpful;
}

void check_profile(const Profile& profile) {
  if (profile.modules.empty()) throw ProfileError("modules: there are none");
  if (profile.frames < 1) throw ProfileError("frames: less than 1");
  check_number(profile.input_bytes, "profile", "input_bytes");
  for (std::size_t i = 0; i < profile.modules.size(); ++i) {
    check_module(profile.modules[i], place(profile, i));
  }
  if (profile.modules.front().input_gradient.median > 0) {
    throw ProfileError(place(profile, 0) +
                       ": input_gradient must be 0: the first module needs none");
  }
  check_threads(profile.thread_speedup);
  for (const HandOff& hand_off : profile.hand_offs) {
    for (const auto& [bytes, ms] : hand_off.points) {
      check_number(bytes, "hand-off " + hand_off.between, "bytes");
      check_number(ms, "hand-off " + hand_off.between, "ms");
    }
  }
}

Link fit_link(const std::vector<std::pair<double, double>>& points) {
  if (points.empty()) return {};
  const double n = double(points.size());
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [bytes, ms] : points) {
    x += bytes / n;
    y += ms / n;
  }
  for (const auto& [bytes, ms] : points) {
    xx += (bytes - x) * (bytes - x);
    xy += (bytes - x) * (ms - y);
  }
  double slope = xx > 0 ? std::max(0.0, xy / xx) : 0.0;
  double latency = y - slope * x;
  if (latency < 0) {  // the best admissible line goes through the origin
    double square = 0, product = 0;
    for (const auto& [bytes, ms] : points) {
      square += bytes * bytes;
      product += bytes * ms;
    }
    latency = 0;
    slope = product / square;
  }
  return {latency, slope > 0 ? 1.0 / slope : 0.0};
}

}  // namespace millrace::engine::plan
