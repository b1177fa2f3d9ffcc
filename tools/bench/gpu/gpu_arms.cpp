#include "tools/bench/gpu/gpu_arms.h"

#include "tools/app/provenance.h"
#include "tools/bench/gpu/bare_step.h"
#include "tools/bench/gpu/gpu_bare_arms.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::Capture;

constexpr int kSharing = 4;  ///< stages, where several share the device

/// One way to learn from frames, and how many a second it takes.
struct Way {
  std::string name;
  std::function<double(double seconds)> frames_a_second;
};

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

/// Frames a second in several ways.
class Rates final : public GpuArm {
 public:
  struct Ratio {
    std::string name, over, under;
  };
  Rates(std::vector<Way> ways, std::vector<Ratio> ratios)
      : ways_(std::move(ways)), ratios_(std::move(ratios)) {}
  void turn(double seconds, Figures& figures) override {
    for (const Way& way : ways_) figures.add(way.name, way.frames_a_second(seconds));
    for (const Ratio& ratio : ratios_) figures.add_ratio(ratio.name, ratio.over, ratio.under);
  }

 private:
  std::vector<Way> ways_;
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
    std::vector<Way> ways;
    for (const Change& change : {one, other}) {
      engine::TrainerOptions options = gpu_options(how, network, size, stages, Capture::graph);
      change.apply(options);
      ways.push_back(options.capture == Capture::eager ? by_operators(options)
                                                       : by_engine(change.name, network, options));
    }
    return std::make_unique<Rates>(std::move(ways),
                                   std::vector<Rates::Ratio>{{"ratio", one.name, other.name}});
  });
}

/// One network and size: recorded and eager at one stage, recorded at several.
Json network_rates(const GpuBench& how, const std::string& network, std::int64_t size) {
  return measured(how, entry_of("network", network, size, kSharing), how.network_turns, [&] {
    const auto one = gpu_options(how, network, size, 1, Capture::graph);
    const auto several = gpu_options(how, network, size, kSharing, Capture::graph);
    return std::make_unique<Rates>(
        std::vector<Way>{by_engine("graph_fps", network, one), by_operators(one),
                         by_engine("staged_fps", network, several)},
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
  Json results = {{"suite", "gpu"},
                  {"provenance", app::provenance(1)},
                  {"turns", how.turns},
                  {"network_turns", how.network_turns},
                  {"seconds", how.seconds}};
  const auto add = [&](const char* list, Json entry) {
    results[list].push_back(std::move(entry));
    if (how.keep) how.keep(results);
  };
  const Change eager{"eager_fps", [](auto& options) { options.capture = Capture::eager; }};
  const Change bytes{"bytes_fps", [](auto& options) { options.input_as_bytes = true; }};
  const std::int64_t size = how.sizes.front();
  for (const int stages : how.stages)
    add("stages", compared(how, "graph against eager", size, stages, {"graph_fps"}, eager));
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

}  // namespace millrace::bench
