// Which arms the GPU benchmark has.
#include <nlohmann/json.hpp>

#include "tools/app/provenance.h"
#include "tools/bench/gpu/bare_step.h"
#include "tools/bench/gpu/gpu_arm.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::Capture;

constexpr int kSharing = 4;  ///< stages, where several share the device

/// Frames a second that the engine learns from.
Way by_engine(const std::string& name, const std::string& network,
              const engine::TrainerOptions& options) {
  const auto arm = std::make_shared<BenchArm>(network, options.sample.height, options);
  return {name, [arm](double seconds) { return frames_a_second(*arm, seconds); }};
}

/// PyTorch's eager training of the whole network.
Way by_operators(engine::TrainerOptions options) {
  options.stages = 1;
  options.cut.clear();
  options.devices.resize(1);
  const auto steps =
      std::make_shared<BareSteps>(make_bare_steps(options, BareWork::step, BareLaunch::operators));
  return {"eager_fps", [steps](double seconds) { return 1 / seconds_a_round(*steps, seconds); }};
}

Json entry_of(const std::string& arm, const std::string& network, std::int64_t size, int stages) {
  return {{"arm", arm}, {"network", network}, {"size", size}, {"stages", stages}};
}

Json graph_against_eager(const GpuBench& how, int stages) {
  const std::string network = how.networks.front();
  const std::int64_t size = how.sizes.front();
  const Json entry = entry_of("graph against eager", network, size, stages);
  return measured(how, entry, how.turns, [&]() -> GpuArm {
    const auto options = gpu_options(how, network, size, stages, Capture::graph);
    return {{by_engine("graph_fps", network, options), by_operators(options)},
            {{"ratio", "graph_fps", "eager_fps"}}};
  });
}

Json floats_and_bytes(const GpuBench& how) {
  const std::string network = how.networks.front();
  const std::int64_t size = how.sizes.back();
  const Json entry = entry_of("floats and bytes", network, size, 1);
  return measured(how, entry, how.turns, [&]() -> GpuArm {
    const auto floats = gpu_options(how, network, size, 1, Capture::graph);
    auto bytes = floats;
    bytes.input_as_bytes = true;
    return {{by_engine("bytes_fps", network, bytes), by_engine("floats_fps", network, floats)},
            {{"ratio", "bytes_fps", "floats_fps"}}};
  });
}

/// One network and size: recorded and eager at one stage, recorded at several.
Json network_rates(const GpuBench& how, const std::string& network, std::int64_t size) {
  const Json entry = entry_of("network", network, size, kSharing);
  return measured(how, entry, how.network_turns, [&]() -> GpuArm {
    const auto one = gpu_options(how, network, size, 1, Capture::graph);
    const auto several = gpu_options(how, network, size, kSharing, Capture::graph);
    return {{by_engine("graph_fps", network, one), by_operators(one),
             by_engine("staged_fps", network, several)},
            {{"ratio", "graph_fps", "eager_fps"}, {"staged_ratio", "staged_fps", "graph_fps"}}};
  });
}

/// The engine's recorded stages against bare graphs.
Json against_bare(const GpuBench& how, const std::string& arm, int stages,
                  GpuArm (*make)(const engine::TrainerOptions&)) {
  const std::string network = how.networks.front();
  const std::int64_t size = how.sizes.front();
  return measured(how, entry_of(arm, network, size, stages), how.turns,
                  [&] { return make(gpu_options(how, network, size, stages, Capture::graph)); });
}

}  // namespace

Json gpu_results(const GpuBench& how) {
  Json results = {{"suite", "gpu"},
                  {"provenance", app::provenance(1)},
                  {"turns", how.turns},
                  {"network_turns", how.network_turns},
                  {"seconds", how.seconds}};
  const auto add = [&](const char* list, Json entry) {
    results[list].push_back(std::move(entry));
    if (how.keep) how.keep(results);
  };
  for (const int stages : how.stages) add("stages", graph_against_eager(how, stages));
  add("bytes", floats_and_bytes(how));
  add("relaunch", against_bare(how, "relaunch", 1, relaunch_arm));
  add("independent", against_bare(how, "independent", kSharing, independent_arm));
  add("processor_time", against_bare(how, "processor time", 1, processor_time_arm));
  for (const int stages : {1, kSharing})
    add("latency", against_bare(how, "latency", stages, latency_arm));
  for (const std::string& network : how.networks) {
    for (const std::int64_t size : how.sizes) add("networks", network_rates(how, network, size));
  }
  return results;
}

}  // namespace millrace::bench
