#include "engine/module_times.h"

#include <ATen/ATen.h>  // sample

#include <algorithm>  // nth_element
#include <chrono>     // timing

#include "stages/stage.h"

namespace millrace::engine {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Work>
double time_ms(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

std::vector<ModuleTime> measure_modules(const std::shared_ptr<const stages::Network>& network,
                                        const stages::ImageShape& input,
                                        const stages::OptimizerSpec& optimizer, int repeats) {
  const stages::StateDict weights = stages::initial_state(*network, 0);
  std::vector<ModuleTime> times;
  stages::Tensors x = {at::rand({1, input.channels, input.height, input.width})};
  if (network->channels_last()) x[0] = x[0].contiguous(at::MemoryFormat::ChannelsLast);
  for (int index = 0; index < network->size(); ++index) {
    // A stage of this module alone, without the loss: the gradients come from outside.
    stages::Stage stage(network, {index, index + 1, index == 0, false}, optimizer, at::kCPU);
    stages::load_state(stage.parameters(), weights);
    std::vector<double> forward, backward, update;
    stages::Tensors outputs;
    for (int repeat = 0; repeat < repeats + 2; ++repeat) {
      stages::Activations kept;
      const double f = time_ms([&] { kept = stage.forward(x); });
      outputs = kept.outputs;
      stages::Tensors gradients;
      for (const at::Tensor& output : outputs) gradients.push_back(at::full_like(output, 1e-3));
      const double b = time_ms([&] { stage.backward(kept, gradients); });
      const double u = time_ms([&] { stage.update(); });
      if (repeat < 2) continue;  // warm-up
      forward.push_back(f);
      backward.push_back(b);
      update.push_back(u);
    }
    times.push_back({median(forward), median(backward), median(update)});
    x = outputs;
  }
  return times;
}

}  // namespace millrace::engine
