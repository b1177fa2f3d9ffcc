// `millrace bench framerate`: frames a second and latency of four networks at chosen sizes and
// numbers of stages.
#include <cstdio>  // table

#include "engine/pipeline/pinning.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_arm.h"
#include "tools/run/provenance.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Figures {
  std::vector<double> fps, T, T_over_N, bottleneck, p50, p99;
  void add(const Turn& turn) {
    const engine::Reading& r = turn.reading;
    fps.push_back(turn.fps);
    T.push_back(r.T);
    T_over_N.push_back(r.T_over_N);
    bottleneck.push_back(r.bottleneck);
    p50.push_back(r.latency_p50);
    p99.push_back(r.latency_p99);
  }
};

std::vector<BenchArm> make_arms(const BenchArguments& arguments) {
  const auto& names = arguments.networks.empty() ? bench_network_names() : arguments.networks;
  const int stages = arguments.stages > 0 ? int(arguments.stages) : engine::usable_cores();
  std::vector<BenchArm> arms;
  for (const std::string& name : names) {
    for (const std::int64_t size : sizes_or(arguments, {32, 64})) {
      for (int n = 1; n <= stages; ++n)
        arms.emplace_back(name, size, n, arguments.memory_format == "channels_last");
    }
  }
  return arms;
}

Json arm_json(const BenchArm& arm, const Figures& f, double one_stage_fps) {
  const double fps = median(f.fps);
  return {{"arm",
           arm.network() + " " + std::to_string(arm.size()) + " x" + std::to_string(arm.stages())},
          {"network", arm.network()},
          {"size", arm.size()},
          {"stages", arm.stages()},
          {"cut", arm.cut()},
          {"fps", fps},
          {"speedup", one_stage_fps > 0 ? fps / one_stage_fps : 1.0},
          {"T_ms", median(f.T)},
          {"T_over_N_ms", median(f.T_over_N)},
          {"bottleneck_ms", median(f.bottleneck)},
          {"latency_p50_ms", median(f.p50)},
          {"latency_p99_ms", median(f.p99)}};
}

void print_row(const Json& arm) {
  std::printf("%-9s %5lld %6lld %9.1f %8.2f %9.2f %9.2f %10.2f %9.2f %9.2f\n",
              arm["network"].get<std::string>().c_str(), arm["size"].get<long long>(),
              arm["stages"].get<long long>(), arm["fps"].get<double>(),
              arm["speedup"].get<double>(), arm["T_ms"].get<double>(),
              arm["T_over_N_ms"].get<double>(), arm["bottleneck_ms"].get<double>(),
              arm["latency_p50_ms"].get<double>(), arm["latency_p99_ms"].get<double>());
}

}  // namespace

Json bench_framerate(const BenchArguments& arguments) {
  std::vector<BenchArm> arms = make_arms(arguments);
  std::vector<Figures> figures(arms.size());
  for (std::int64_t round = 0; round < arguments.rounds; ++round) {
    for (std::size_t i = 0; i < arms.size(); ++i) {
      std::fprintf(stderr, "\rround %lld of %lld, arm %zu of %zu \x1b[K",
                   static_cast<long long>(round + 1), static_cast<long long>(arguments.rounds),
                   i + 1, arms.size());
      figures[i].add(arms[i].turn(arguments.seconds));
    }
  }
  std::fputs("\r\x1b[K", stderr);
  std::printf("%-9s %5s %6s %9s %8s %9s %9s %10s %9s %9s\n", "network", "size", "stages",
              "frames/s", "speed-up", "T ms", "T/N ms", "slowest ms", "p50 ms", "p99 ms");
  Json results = {{"suite", "framerate"},
                  {"rounds", arguments.rounds},
                  {"seconds", arguments.seconds},
                  {"memory_format", arguments.memory_format},
                  {"arms", Json::array()}};
  double one_stage = 0;
  int most = 1;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    if (arms[i].stages() == 1) one_stage = median(figures[i].fps);
    most = std::max(most, arms[i].stages());
    results["arms"].push_back(arm_json(arms[i], figures[i], one_stage));
    print_row(results["arms"].back());
  }
  results["provenance"] = provenance(most);
  return results;
}

}  // namespace millrace::tools
