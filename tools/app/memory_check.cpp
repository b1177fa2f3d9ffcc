#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "engine/format.h"
#include "engine/plan/plan_text.h"
#include "engine/schedule/verifier.h"
#include "engine/trainer/operations.h"
#include "tools/app/assembly.h"

namespace millrace::app {
namespace {

using engine::plan::bytes_text;

/// Bytes that this process may use: the machine's memory, or its control group's if that is less.
double memory_there() {
  const double machine = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  double group = 0;
  std::ifstream("/sys/fs/cgroup/memory.max") >> group;  // "max": no limit
  return group > 0 ? std::min(machine, group) : machine;
}

struct Need {
  double weights = 0, activations = 0;  ///< bytes
  double all() const { return weights + activations; }
};

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
    if (learns && module > begin)
      need.activations += 4.0 * double(network.shape(module - 1).elements());
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

/// Counts the weights of each version, the inputs that their gradients need and the optimizer's
/// state, so a run takes more. Allocates nothing.
void require_stage_memory(const Config& config, const engine::TrainerOptions& options,
                          double there) {
  if (std::ranges::any_of(options.devices, &engine::Device::cuda)) return;
  if (need_of(options, false).all() <= there) return;
  const Need need = need_of(options, true);
  if (need.all() <= there) return;
  throw config.error("model.preset", "the network takes at least " + bytes_text(need.all()) +
                                         " (weights and optimizer " + bytes_text(need.weights) +
                                         ", activations " + bytes_text(need.activations) + "); " +
                                         bytes_text(need.all() - there) + " more than there is" +
                                         what_fits(options, there));
}

/// Bytes for all samples that are replayed; 0: unknown.
double replay_bytes(const Config& config, const engine::TrainerOptions& options) {
  if (options.sample.elements() == 0) return 0;
  if (replay_of(config, *options.network) == "ridge") {
    const int last = options.network->size() - 1;
    const auto inputs = double(options.network->parameters(last, last + 1)[0].shape[1]);
    // A frame's features, and their inner products with all others.
    return config.replay.size * (inputs * sizeof(float) + config.replay.size * sizeof(double));
  }
  const auto bytes = [](const stages::ImageShape& shape, bool as_bytes) {
    return double(shape.elements()) * (as_bytes ? 1.0 : double(sizeof(float)));
  };
  const double target =
      options.target_is_input ? 0 : bytes(options.network->output(), options.target_as_bytes);
  return (bytes(options.sample, options.input_as_bytes) + target) * config.replay.size;
}

}  // namespace

void require_memory(const Config& config, const engine::TrainerOptions& options) {
  const double there = memory_there();
  require_stage_memory(config, options, there);
  const double replay = replay_bytes(config, options);
  if (replay_of(config, *options.network) == "none" || replay <= there) return;
  throw config.error("replay.size", std::to_string(config.replay.size) + " samples take " +
                                        bytes_text(replay) + "; the machine has " +
                                        bytes_text(there));
}

std::string describe_replay(const Config& config, const engine::TrainerOptions& options,
                            std::optional<bool> live) {
  const std::string kind = replay_of(config, *options.network);
  if (kind == "none") return "none";
  std::string text = kind + " of " + std::to_string(config.replay.size) +
                     (kind == "ridge" ? " labelled frames" : " samples");
  const double bytes = replay_bytes(config, options);
  if (bytes > 0) text += ", " + bytes_text(bytes);
  if (kind == "ridge") return text + "; solves the last layer, the other weights stay";
  const bool is_auto = config.replay.share < 0;
  text += is_auto ? "; as many as" : engine::format("; %.3g of all samples", config.replay.share);
  if (live == false) {
    return is_auto ? text.substr(0, text.rfind(';')) +
                         "; none is replayed, since the stream waits for the pipeline: name a "
                         "replay.share"
                   : text;
  }
  text += is_auto ? " real time leaves room for" : ", as far as real time leaves room";
  return live ? text : text + ", where frames come at their own rate";
}

}  // namespace millrace::app
