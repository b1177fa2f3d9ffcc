// `millrace bench pipeline`: what the engine itself costs. Each arm is a number of stages; at one
// stage the same stage also runs in a bare loop, without links, monitor or threads.
#include <ATen/ATen.h>  // frames of the bare loop

#include <cstdio>  // table

#include "engine/pipeline/pinning.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_arm.h"
#include "tools/app/provenance.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::Clock;

double milliseconds(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

/// Median step of forward, backward and update called in a loop.
double bare_loop_ms(const BenchArm& arm, double seconds) {
  engine::pin_this_thread(0);
  engine::TrainerOptions options = arm.options();
  options.weights = stages::initial_state(*options.network, 0);
  std::vector<stages::Stage> stage =
      engine::build_stages(options, engine::make_schedule("partime", {.stages = 1}));
  const at::Tensor frame = at::rand({1, 3, arm.size(), arm.size()});
  std::vector<double> steps;
  const Clock::time_point until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                     std::chrono::duration<double>(seconds));
  for (Clock::time_point start = Clock::now(); start < until || steps.size() < 8;) {
    stages::Activations kept = stage[0].forward({frame}, frame);
    stage[0].backward(kept, {});
    stage[0].update({.count = 1}, 1.0);
    const Clock::time_point end = Clock::now();
    steps.push_back(milliseconds(end - start));
    start = end;
  }
  return median(steps);
}

/// Nanoseconds the monitor takes from one step: as many calls as a worker of a middle stage makes.
double monitor_ns() {
  constexpr int kSteps = 20000;
  engine::Monitor monitor({1}, 30.0);
  engine::StageMeter& meter = monitor.meter(0);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kSteps; ++i) {
    meter.begin(Clock::now());
    for (int lap = 0; lap < 6; ++lap) {
      meter.lap(lap % 2 ? engine::StageMeter::Part::compute : engine::StageMeter::Part::handoff,
                Clock::now());
    }
    meter.updated(i);
    monitor.predicted(start, Clock::now());
  }
  return milliseconds(Clock::now() - start) * 1e6 / kSteps;
}

struct Figures {
  std::vector<double> step, share, bare, ratio;
};

/// Hand-off's share in the slowest stage's step.
double handoff_percent(const engine::Reading& r) {
  const int slowest = r.bottleneck_stage;
  return 100.0 * r.handoff[slowest] / (r.handoff[slowest] + r.stage[slowest]);
}

void take_turn(BenchArm& arm, Figures& f, double seconds) {
  const Turn turn = arm.turn(seconds);
  f.step.push_back(turn.reading.step_p50);
  f.share.push_back(handoff_percent(turn.reading));
  if (arm.stages() > 1) return;
  f.bare.push_back(bare_loop_ms(arm, seconds));
  f.ratio.push_back(f.step.back() / f.bare.back());
}

Json arm_json(const BenchArm& arm, const Figures& f, double one_stage_ms, double monitor) {
  const double step = median(f.step);
  Json row = {{"arm", "basic " + std::to_string(arm.size()) + " x" + std::to_string(arm.stages())},
              {"size", arm.size()},
              {"stages", arm.stages()},
              {"cut", arm.cut()},
              {"step_ms", step},
              {"speedup", one_stage_ms / step},
              {"engine_share_percent", median(f.share)},
              {"monitor_share_percent", 100.0 * monitor * 1e-6 / step}};
  if (!f.bare.empty()) {
    row["bare_loop_ms"] = median(f.bare);
    row["step_over_bare"] = median(f.ratio);
  }
  return row;
}

void print_row(const Json& row) {
  std::printf("%5lld %6lld %9.3f %8.2f %12.3f %12.4f", row["size"].get<long long>(),
              row["stages"].get<long long>(), row["step_ms"].get<double>(),
              row["speedup"].get<double>(), row["engine_share_percent"].get<double>(),
              row["monitor_share_percent"].get<double>());
  if (row.contains("step_over_bare")) {
    std::printf(" %9.3f %9.4f", row["bare_loop_ms"].get<double>(),
                row["step_over_bare"].get<double>());
  }
  std::printf("\n");
}

}  // namespace

Json bench_pipeline(const BenchArguments& arguments) {
  const int most = arguments.stages > 0 ? int(arguments.stages) : engine::usable_cores();
  std::vector<BenchArm> arms;
  for (const std::int64_t size : sizes_or(arguments, {32, 64})) {
    for (int n = 1; n <= most; ++n) {
      engine::TrainerOptions options;
      options.stages = n;
      options.capture = engine::Capture::eager;  // as the bare loop beside it
      arms.emplace_back("basic", size, std::move(options),
                        arguments.memory_format == "channels_last");
    }
  }
  std::vector<Figures> figures(arms.size());
  std::vector<double> monitor;
  for (std::int64_t round = 0; round < arguments.rounds; ++round) {
    for (std::size_t i = 0; i < arms.size(); ++i) take_turn(arms[i], figures[i], arguments.seconds);
    monitor.push_back(monitor_ns());
  }
  std::printf("monitor %.0f ns a step\n", median(monitor));
  std::printf("%5s %6s %9s %8s %12s %12s %9s %9s\n", "size", "stages", "step ms", "speed-up",
              "hand-off %", "monitor %", "bare ms", "step/bare");
  Json results = {{"suite", "pipeline"},           {"rounds", arguments.rounds},
                  {"seconds", arguments.seconds},  {"memory_format", arguments.memory_format},
                  {"monitor_ns", median(monitor)}, {"arms", Json::array()}};
  double one_stage = 0;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    if (arms[i].stages() == 1) one_stage = median(figures[i].step);
    results["arms"].push_back(arm_json(arms[i], figures[i], one_stage, median(monitor)));
    print_row(results["arms"].back());
  }
  results["provenance"] = app::provenance(most);
  return results;
}

}  // namespace millrace::bench
