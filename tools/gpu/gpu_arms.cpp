#include "tools/gpu/gpu_arms.h"

#include "tools/gpu/gpu_bare_arms.h"
#include "tools/run/provenance.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;
using engine::Capture;

constexpr int kSharing = 4;  ///< stages, where several share the device

/// Frames a second of the engine in several ways.
class Rates final : public GpuArm {
 public:
  struct Way {
    std::string name;
    engine::TrainerOptions options;
  };
  struct Ratio {
    std::string name, over, under;
  };
  Rates(const std::string& network, const std::vector<Way>& ways, std::vector<Ratio> ratios)
      : ratios_(std::move(ratios)) {
    for (const Way& way : ways) {
      names_.push_back(way.name);
      arms_.emplace_back(network, way.options.sample.height, way.options);
    }
  }
  void turn(double seconds, Figures& figures) override {
    for (std::size_t i = 0; i < arms_.size(); ++i)
      figures.add(names_[i], frames_a_second(arms_[i], seconds));
    for (const Ratio& ratio : ratios_) figures.add_ratio(ratio.name, ratio.over, ratio.under);
  }

 private:
  std::vector<std::string> names_;
  std::vector<BenchArm> arms_;
  std::vector<Ratio> ratios_;
};

Json entry_of(const std::string& arm, const std::string& network, std::int64_t size, int stages) {
  return {{"arm", arm}, {"network", network}, {"size", size}, {"stages", stages}};
}

/// One change to recorded stages against another; the ratio is the first over the second.
struct Change {
  std::string name;
  std::function<void(engine::TrainerOptions&)> apply = [](engine::TrainerOptions&) {};
};

Json compared(const GpuBench& how, const std::string& arm, std::int64_t size, int stages,
              const Change& one, const Change& other) {
  const std::string network = how.networks.front();
  return measured(how, entry_of(arm, network, size, stages), how.turns, [&] {
    std::vector<Rates::Way> ways;
    for (const Change& change : {one, other}) {
      ways.push_back({change.name, gpu_options(how, network, size, stages, Capture::graph)});
      change.apply(ways.back().options);
    }
    return std::make_unique<Rates>(network, ways,
                                   std::vector<Rates::Ratio>{{"ratio", one.name, other.name}});
  });
}

/// One network and size: recorded and eager at one stage, recorded at several.
Json network_rates(const GpuBench& how, const std::string& network, std::int64_t size) {
  return measured(how, entry_of("network", network, size, kSharing), how.network_turns, [&] {
    return std::make_unique<Rates>(
        network,
        std::vector<Rates::Way>{
            {"graph_fps", gpu_options(how, network, size, 1, Capture::graph)},
            {"eager_fps", gpu_options(how, network, size, 1, Capture::eager)},
            {"staged_fps", gpu_options(how, network, size, kSharing, Capture::graph)}},
        std::vector<Rates::Ratio>{{"ratio", "graph_fps", "eager_fps"},
                                  {"staged_ratio", "staged_fps", "graph_fps"}});
  });
}

using MakeBareArm = std::unique_ptr<GpuArm> (*)(const engine::TrainerOptions&);

/// The engine's recorded stages against bare graphs.
Json against_bare(const GpuBench& how, const std::string& arm, int stages, MakeBareArm make) {
  const std::string network = how.networks.front();
  const std::int64_t size = how.sizes.front();
  return measured(how, entry_of(arm, network, size, stages), how.turns,
                  [&] { return make(gpu_options(how, network, size, stages, Capture::graph)); });
}

}  // namespace

Json gpu_results(const GpuBench& how) {
  Json results = {{"provenance", provenance(1)},
                  {"turns", how.turns},
                  {"network_turns", how.network_turns},
                  {"seconds", how.seconds}};
  const auto add = [&](const char* list, Json entry) {
    results[list].push_back(std::move(entry));
    if (how.keep) how.keep(results);
  };
  const Change eager{"eager_fps", [](auto& options) { options.capture = Capture::eager; }};
  const Change partitions{"partitions_fps",
                          [](auto& options) { options.sharing = engine::Sharing::partitions; }};
  const Change bytes{"bytes_fps", [](auto& options) { options.input_as_bytes = true; }};
  const std::int64_t size = how.sizes.front();
  for (const int stages : how.stages)
    add("stages", compared(how, "graph against eager", size, stages, {"graph_fps"}, eager));
  for (const int stages : how.stages) {
    if (stages > 1)
      add("sharing",
          compared(how, "streams and partitions", size, stages, partitions, {"streams_fps"}));
  }
  add("bytes", compared(how, "floats and bytes", how.sizes.back(), 1, bytes, {"floats_fps"}));
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

}  // namespace millrace::tools
