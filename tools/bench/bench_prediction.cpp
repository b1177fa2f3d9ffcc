// `millrace bench prediction`: the step that the simulator predicts from measured stages beside the
// step of the pipeline itself, for every schedule, taken in turns.
#include <algorithm>  // max
#include <cmath>      // abs
#include <cstdio>     // table

#include "engine/pipeline/pinning.h"
#include "engine/simulate/simulator.h"
#include "engine/trainer/profiler.h"
#include "engine/trainer/stage_profiler.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_arm.h"
#include "tools/bench/other_load.h"
#include "tools/bench/periods.h"
#include "tools/app/provenance.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLeastUpdates = 8;     ///< of the pipeline, in a turn
constexpr double kDisturbed = 0.05;  ///< cores that others took; such a turn is taken again
constexpr int kTries = 3;
constexpr double kGoal = 0.05;  ///< how far a prediction may be off

/// Pixels a side at which a step takes some milliseconds.
std::int64_t own_size(const std::string& network) {
  if (network == "basic") return 64;
  return network == "kernel" ? 16 : 32;
}

struct Figures {
  std::vector<double> predicted, measured, ratio, others;
};

/// What `turn` returns and the cores that others took meanwhile; a disturbed turn is taken again,
/// and the least disturbed one counts.
template <class Turn>
std::pair<double, double> quietest(const Turn& turn) {
  std::pair<double, double> best{0, 1e9};
  for (int tries = 0; tries < kTries && best.second > kDisturbed; ++tries) {
    const OtherLoad others;
    const double figure = turn();
    if (const double cores = others.cores(); cores < best.second) best = {figure, cores};
  }
  return best;
}

void take_turn(BenchArm& arm, const engine::plan::Link& link, Figures& f, double seconds) {
  const engine::Schedule schedule = engine::schedule_of(arm.options());
  const auto [predicted, beside] = quietest([&] {
    return engine::predict(schedule, engine::measure_stages(arm.options(), seconds / 2), link,
                           engine::usable_cores());
  });
  const auto [measured, meanwhile] = quietest([&] {
    Periods times;
    arm.turn(seconds / 2, kLeastUpdates * schedule.group, &times);
    return times.period_ms(std::size_t(schedule.group));
  });
  f.predicted.push_back(predicted);
  f.measured.push_back(measured);
  f.ratio.push_back(predicted / measured);
  f.others.push_back(std::max(beside, meanwhile));
}

int workers_of(const BenchArm& arm) {
  return int(engine::schedule_of(arm.options()).workers.size());
}

std::vector<BenchArm> make_arms(const BenchArguments& arguments) {
  const auto& names = arguments.networks.empty() ? bench_network_names() : arguments.networks;
  const int most = arguments.stages > 0 ? int(arguments.stages) : 2;
  std::vector<BenchArm> arms;
  for (const std::string& name : names) {
    for (const std::int64_t size : sizes_or(arguments, {own_size(name)})) {
      std::vector<std::vector<int>> cuts(2 * most + 1);  // by stages, the same for all schedules
      for (int workers = 1; workers <= most; ++workers) {
        for (const std::string& schedule : engine::schedule_names()) {
          const int stages = schedule == "interleaved" ? 2 * workers : workers;
          engine::TrainerOptions options;
          options.capture = engine::Capture::eager;  // as modules are profiled
          options.schedule = schedule;
          options.stages = stages;
          options.cut = cuts[stages];
          arms.emplace_back(name, size, options);
          cuts[stages] = arms.back().cut();
        }
      }
    }
  }
  return arms;
}

Json arm_json(const BenchArm& arm, const Figures& f) {
  const int workers = workers_of(arm);
  return {{"arm", arm.network() + " " + std::to_string(arm.size()) + " " + arm.options().schedule +
                      " x" + std::to_string(workers)},
          {"network", arm.network()},
          {"size", arm.size()},
          {"schedule", arm.options().schedule},
          {"workers", workers},
          {"stages", arm.stages()},
          {"cut", arm.cut()},
          {"predicted_ms", median(f.predicted)},
          {"measured_ms", median(f.measured)},
          {"ratio", median(f.ratio)},
          {"others_cores", median(f.others)}};
}

void print_row(const Json& arm) {
  std::printf("%-32s %12.3f %12.3f %8.3f %10.2f\n", arm["arm"].get<std::string>().c_str(),
              arm["predicted_ms"].get<double>(), arm["measured_ms"].get<double>(),
              arm["ratio"].get<double>(), arm["others_cores"].get<double>());
}

}  // namespace

Json bench_prediction(const BenchArguments& arguments) {
  std::vector<BenchArm> arms = make_arms(arguments);
  std::vector<Figures> figures(arms.size());
  std::vector<double> latency;
  for (std::int64_t round = 0; round < arguments.rounds; ++round) {
    const engine::plan::Link link = engine::plan::fit_link(engine::measure_hand_off().points);
    latency.push_back(link.latency_ms);
    for (std::size_t i = 0; i < arms.size(); ++i) {
      std::fprintf(stderr, "\rround %lld of %lld, arm %zu of %zu \x1b[K",
                   static_cast<long long>(round + 1), static_cast<long long>(arguments.rounds),
                   i + 1, arms.size());
      take_turn(arms[i], link, figures[i], arguments.seconds);
    }
  }
  std::fputs("\r\x1b[K", stderr);
  std::printf("%-32s %12s %12s %8s %10s\n", "", "predicted ms", "measured ms", "ratio", "others");
  Json results = {{"suite", "prediction"},
                  {"rounds", arguments.rounds},
                  {"seconds", arguments.seconds},
                  {"link_latency_ms", median(latency)},
                  {"goal", kGoal},
                  {"within", 0},
                  {"arms", Json::array()}};
  int within = 0;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    results["arms"].push_back(arm_json(arms[i], figures[i]));
    print_row(results["arms"].back());
    within += std::abs(results["arms"].back()["ratio"].get<double>() - 1) <= kGoal;
  }
  results["within"] = within;
  results["provenance"] = app::provenance(2);
  std::printf("within %.0f %%: %d of %zu; others: cores that other programs took meanwhile\n",
              100 * kGoal, within, arms.size());
  return results;
}

}  // namespace millrace::bench
