#include "tools/app/memory_check.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "engine/plan/plan_text.h"
#include "engine/schedule/verifier.h"
#include "engine/trainer/stage_memory.h"
#include "tools/app/assembly.h"

namespace millrace::app {
namespace {

using engine::plan::bytes_text;

struct Need {
  double weights = 0, activations = 0;  ///< bytes
  double all() const { return weights + activations; }
};

double bytes_of(const stages::ImageShape& shape) {
  return 4.0 * double(shape.channels) * double(shape.height) * double(shape.width);
}

/// Of modules [begin, end): one version of the weights, and one sample's inputs of those that
/// learn.
Need need_of(const stages::Network& network, int begin, int end) {
  Need need;
  for (int module = begin; module < end; ++module) {
    bool learns = false;
    for (const stages::ParameterSpec& spec : network.parameters(module, module + 1)) {
      double bytes = 4;
      for (const std::int64_t size : spec.shape) bytes *= double(size);
      need.weights += bytes;
      learns = learns || !spec.fixed;
    }
    if (learns && module > begin) need.activations += bytes_of(network.shape(module - 1));
  }
  return need;
}

/// `counts` sets of activations, which takes long where there are many microbatches; else a bound:
/// one for each sample in flight.
Need need_of(const engine::TrainerOptions& options, bool counts) {
  const engine::Schedule schedule = engine::schedule_of(options);
  const std::vector<int> inner = counts ? engine::tensor_sets(schedule).inner
                                        : std::vector<int>(options.stages, schedule.slots());
  const stages::Network& network = *options.network;
  const double moments = options.optimizer.kind.starts_with("adam") ? 2 : 0;
  std::vector<int> ends =
      options.cut.empty() ? engine::even_cut(network.size(), options.stages) : options.cut;
  ends.push_back(network.size());
  Need all;
  for (int stage = 0; stage < options.stages; ++stage) {
    const Need one =
        need_of(network, stage == 0 ? 0 : ends[std::size_t(stage - 1)], ends[std::size_t(stage)]);
    const int replicas = schedule.replicas_of(stage);
    all.weights += one.weights * (schedule.versions_of(stage) + moments) * replicas;
    all.activations += one.activations * inner[std::size_t(stage)] * replicas;
  }
  return all;
}

/// "; pipeline.recompute = true would take at least 3.1 GB"; "" if nothing here fits.
std::string what_fits(const engine::TrainerOptions& options, double there) {
  const auto tried = [&](const char* text, const auto& change) -> std::string {
    engine::TrainerOptions other = options;
    change(other);
    try {
      const double bytes = need_of(other, true).all();
      if (bytes <= there)
        return std::string("; ") + text + " would take at least " + bytes_text(bytes);
    } catch (const std::invalid_argument&) {  // the schedule can't
    }
    return "";
  };
  std::string found = tried("pipeline.recompute = true", [](auto& o) { o.recompute = true; });
  if (found.empty())
    found = tried("pipeline.schedule = \"partime\"", [](auto& o) { o.schedule = "partime"; });
  if (found.empty()) found = tried("optimizer.kind = \"sgd\"", [](auto& o) { o.optimizer = {}; });
  return found;
}

}  // namespace

double memory_there() {
  const double machine = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  double group = 0;
  std::ifstream("/sys/fs/cgroup/memory.max") >> group;  // "max": no limit
  return group > 0 ? std::min(machine, group) : machine;
}

void require_memory(const Config& config, const engine::TrainerOptions& options) {
  if (std::ranges::any_of(options.devices, &engine::Device::cuda)) return;
  const double there = memory_there();
  if (need_of(options, false).all() <= there) return;
  const Need need = need_of(options, true);
  if (need.all() <= there) return;
  throw config.error("model.preset", "the network takes at least " + bytes_text(need.all()) +
                                         " (weights and optimizer " + bytes_text(need.weights) +
                                         ", activations " + bytes_text(need.activations) + "); " +
                                         bytes_text(need.all() - there) + " more than there is" +
                                         what_fits(options, there));
}

}  // namespace millrace::app
