// `millrace bench partime`: the experiments of the PARTIME paper. The speed-up K of 1 to 8 stages
// on four networks by picture size, with steps recorded and eager: measured where there is a core
// for each stage, predicted from measured stages and the simulator everywhere.
#include <algorithm>
#include <cstdio>  // table
#include <limits>

#include "engine/pipeline/pinning.h"
#include "engine/plan/cost_model.h"
#include "engine/simulate/simulator.h"
#include "engine/trainer/operations.h"
#include "engine/trainer/profiler.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_arm.h"
#include "tools/bench/other_load.h"
#include "tools/bench/partime_answers.h"
#include "tools/app/provenance.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStages = 8, kQuickStages = 4;

/// What is measured, how long and how far.
struct Extent {
  std::vector<std::string> networks, captures;
  std::vector<std::int64_t> sizes;
  int stages;
  double seconds;
};

Extent extent_of(const BenchArguments& arguments) {
  Extent extent{
      arguments.networks, arguments.captures,
      sizes_or(arguments, arguments.quick ? std::vector<std::int64_t>{16, 32}
                                          : std::vector<std::int64_t>{16, 32, 64, 128, 256}),
      arguments.stages > 0 ? int(arguments.stages)
      : arguments.quick    ? kQuickStages
                           : kStages,
      arguments.quick ? arguments.seconds / 10 : arguments.seconds};
  if (extent.networks.empty()) extent.networks = bench_network_names();
  if (extent.captures.empty()) extent.captures = {"graph", "eager"};
  return extent;
}

/// What each module costs as its steps will run: recorded, the best times of a step program's
/// operators; eager, medians.
engine::plan::Profile profile_of(const engine::TrainerOptions& options) {
  if (options.capture == engine::Capture::eager) {
    return engine::measure_profile(options.network, options.sample, options.optimizer,
                                   {.repeats = 3, .most_repeats = 3});
  }
  engine::plan::Profile profile;
  for (const double ms : engine::module_times_by_programs(options)) {
    const stages::ImageShape& made = options.network->shape(int(profile.modules.size()));
    const double bytes = double(made.channels * made.height * made.width * 4);
    profile.modules.push_back(
        {.forward = {.median = ms}, .bytes = {.activation = bytes, .gradient = bytes}});
  }
  return profile;
}

/// Milliseconds of a step with as many devices as stages, from the modules' own costs.
Json predicted(const BenchArm& arm, const engine::plan::Profile& profile,
               const engine::plan::Link& link) {
  const auto costs = engine::plan::stage_costs(profile, arm.cut());
  double T = 0, slowest = 0;
  for (const engine::plan::StageCosts& stage : costs) {
    T += stage.ms.total();
    slowest = std::max(slowest, stage.ms.total());
  }
  return {{"step_ms", engine::predict(engine::schedule_of(arm.options()), costs, link)},
          {"T_ms", T},
          {"slowest_ms", slowest}};
}

Json measured(BenchArm& arm, double seconds) {
  const engine::Reading reading = arm.turn(seconds).reading;
  return {{"step_ms", reading.step_p50}, {"T_ms", reading.T}, {"slowest_ms", reading.bottleneck}};
}

/// Puts K, the step of one stage over this one's, into the figures of both kinds.
void add_speedups(Json& arms) {
  for (const char* kind : {"predicted", "measured"}) {
    double alone = std::numeric_limits<double>::quiet_NaN();
    for (Json& arm : arms) {
      if (!arm.contains(kind)) continue;
      const double step = arm[kind]["step_ms"];
      if (arm["stages"] == 1) alone = step;
      arm[kind]["K"] = alone / step;
    }
  }
}

void print_row(const Json& arm) {
  const auto figure = [&](const char* kind, const char* name) {
    return arm.contains(kind) ? arm[kind][name].get<double>()
                              : std::numeric_limits<double>::quiet_NaN();
  };
  std::printf("%-9s %5lld %6lld %7s %12.3f %12.3f %8.2f %8.2f\n",
              arm["network"].get<std::string>().c_str(), arm["size"].get<long long>(),
              arm["stages"].get<long long>(), arm["capture"].get<std::string>().c_str(),
              figure("measured", "step_ms"), figure("predicted", "step_ms"),
              figure("measured", "K"), figure("predicted", "K"));
}

/// One network at one size by one way of running steps: 1 to `extent.stages` stages.
class Row {
 public:
  Row(std::string network, std::int64_t size, std::string capture)
      : network_(std::move(network)), size_(size), capture_(std::move(capture)) {
    options_.capture = capture_ == "graph" ? engine::Capture::graph : engine::Capture::eager;
    options_.sample = {3, size, size};
    options_.network = stages::build_network(bench_network(network_), options_.sample);
    profile_ = profile_of(options_);
    for (const engine::plan::ModuleProfile& module : profile_.modules)
      options_.module_ms.push_back(module.ms().total());
  }

  Json arms(const Extent& extent, const engine::plan::Link& link) const {
    Json all = Json::array();
    for (int n = 1; n <= std::min(extent.stages, options_.network->size()); ++n) {
      engine::TrainerOptions options = options_;
      options.stages = n;
      BenchArm arm(network_, size_, std::move(options));
      Json row = {{"arm", network_ + " " + std::to_string(size_) + " x" + std::to_string(n) + " " +
                              capture_},
                  {"network", network_},
                  {"size", size_},
                  {"stages", n},
                  {"capture", capture_},
                  {"cut", arm.cut()},
                  {"predicted", predicted(arm, profile_, link)}};
      if (n <= engine::usable_cores()) row["measured"] = measured(arm, extent.seconds);
      all.push_back(std::move(row));
    }
    add_speedups(all);
    return all;
  }

 private:
  std::string network_;
  std::int64_t size_;
  std::string capture_;
  engine::TrainerOptions options_;
  engine::plan::Profile profile_;
};

}  // namespace

Json bench_partime(const BenchArguments& arguments) {
  const Extent extent = extent_of(arguments);
  const engine::plan::Link link = engine::plan::fit_link(engine::measure_hand_off().points);
  Json results = {{"suite", "partime"},
                  {"seconds", extent.seconds},
                  {"cores", engine::usable_cores()},
                  {"arms", Json::array()}};
  const std::size_t all = extent.networks.size() * extent.sizes.size() * extent.captures.size();
  std::size_t done = 0;
  const OtherLoad others;
  std::printf("%-9s %5s %6s %7s %12s %12s %8s %8s\n", "network", "size", "stages", "capture",
              "measured ms", "predicted ms", "K", "K pred.");
  // Small pictures first: whoever stops it early has the most.
  for (const std::int64_t size : extent.sizes) {
    for (const std::string& network : extent.networks) {
      for (const std::string& capture : extent.captures) {
        std::fprintf(stderr, "\r%s, %lld pixels, %s: %zu of %zu \x1b[K", network.c_str(),
                     static_cast<long long>(size), capture.c_str(), ++done, all);
        const Json arms = Row(network, size, capture).arms(extent, link);
        std::fputs("\r\x1b[K", stderr);
        for (const Json& arm : arms) {
          results["arms"].push_back(arm);
          print_row(arm);
        }
      }
    }
  }
  results["others_cores"] = others.cores();
  results["statements"] = partime_statements(results);
  results["cameras"] = partime_cameras(results);
  results["provenance"] = app::provenance(engine::usable_cores());
  for (const Json& statement : results["statements"]) {
    std::printf("%-48s %-4s %s\n", statement["statement"].get<std::string>().c_str(),
                statement["answer"].get<std::string>().c_str(),
                statement["figure"].get<std::string>().c_str());
  }
  return results;
}

}  // namespace millrace::bench
