// `millrace bench framerate`: frames a second and latency of networks at chosen sizes, numbers of
// stages and threads.
#include <cmath>
#include <cstdio>  // table
#include <memory>

#include "capture/program/kernels/kernels.h"
#include "engine/pipeline/pinning.h"
#include "engine/trainer/backends.h"
#include "engine/trainer/operations.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_arm.h"
#include "tools/bench/pytorch.h"
#include "tools/app/provenance.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Case {
  std::string network;
  std::int64_t size;
};

struct Figures {
  std::vector<double> fps, T, T_over_N, bottleneck, p50, p99, handoff;
  std::vector<double> peak;  ///< FLOP/s of the core right before each turn
  void add(const Turn& turn) {
    const engine::Reading& r = turn.reading;
    const int slowest = r.bottleneck_stage;
    handoff.push_back(100 * r.handoff[slowest] / (r.handoff[slowest] + r.stage[slowest]));
    fps.push_back(turn.fps);
    T.push_back(r.T);
    T_over_N.push_back(r.T_over_N);
    bottleneck.push_back(r.bottleneck);
    p50.push_back(r.latency_p50);
    p99.push_back(r.latency_p99);
  }
};

/// One of ours, and what it is called.
struct Arm {
  BenchArm bench;
  std::string capture;  ///< "": auto
  Figures figures;
};

/// PyTorch's best of its modes is what counts.
struct PeerArm {
  std::string network, mode;
  std::int64_t size = 0;
  int threads = 1;
  std::vector<double> ms;
};

engine::Capture capture_named(const std::string& name) {
  return name == "graph"   ? engine::Capture::graph
         : name == "eager" ? engine::Capture::eager
                           : engine::Capture::automatic;
}

/// What was asked for; else those that the page has goals for.
std::vector<Case> cases_of(const BenchArguments& arguments) {
  if (arguments.networks.empty() && arguments.sizes.empty()) {
    return {{"basic", 16},  {"basic", 32},    {"basic", 64},  {"basic", 128},
            {"layers", 32}, {"features", 32}, {"kernel", 32}, {"resnet18", 64}};
  }
  std::vector<Case> cases;
  for (const std::string& network :
       arguments.networks.empty() ? bench_network_names() : arguments.networks) {
    for (const std::int64_t size : sizes_or(arguments, {32, 64})) cases.push_back({network, size});
  }
  return cases;
}

std::vector<Arm> make_arms(const BenchArguments& arguments) {
  const int stages = arguments.stages > 0 ? int(arguments.stages) : engine::usable_cores();
  const std::vector<std::string> captures =
      arguments.captures.empty() ? std::vector<std::string>{""} : arguments.captures;
  std::vector<Arm> arms;
  for (const auto& [network, size] : cases_of(arguments)) {
    for (const std::string& capture : captures) {
      const auto add = [&, size = size, &network = network](int n, std::vector<int> threads) {
        engine::TrainerOptions options;
        options.stages = n;
        options.threads = std::move(threads);
        options.capture = capture_named(capture);
        const bool channels_last = arguments.memory_format == "channels_last";
        arms.push_back({BenchArm(network, size, std::move(options), channels_last), capture, {}});
      };
      for (int n = 1; n <= stages; ++n) cli::add(n, {});
      // As many cores on one stage.
      const bool programs = engine::runs_programs(arms.back().bench.options(), 0);
      if (stages > 1 && stages <= engine::usable_cores() && programs) cli::add(1, {stages});
    }
  }
  return arms;
}

std::vector<PeerArm> make_peer_arms(const BenchArguments& arguments) {
  std::vector<PeerArm> arms;
  if (arguments.pytorch.empty()) return arms;
  for (const auto& [network, size] : cases_of(arguments)) {
    for (const char* mode : {"eager", "channels_last", "compile"}) {
      for (int threads = 1; threads <= engine::usable_cores(); threads *= 2)
        arms.push_back({network, mode, size, threads, {}});
    }
  }
  return arms;
}

/// Floating-point operations of the multiply-adds of a step.
double flops_of(const BenchArm& arm) {
  engine::TrainerOptions options = arm.options();
  options.cut.clear();
  double flops = 0;
  const auto stages = engine::stage_operations(options, 0);
  for (const capture::OperationInfo& operation : stages.front()) flops += operation.flops;
  return flops;
}

/// What they take at least, on all cores, by the peak of their registers.
double limit_ms(double flops, double peak) {
  return 1e3 * flops / (peak * engine::usable_cores());
}

/// One stage's steps over what its core's registers would take, each against the peak of the same
/// moment.
double over_peak(const Arm& arm, double flops) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < arm.figures.fps.size(); ++i)
    ratios.push_back(arm.figures.peak[i] / (arm.figures.fps[i] * flops));
  return median(ratios);
}

int threads_of(const Arm& arm) {
  const std::vector<int>& threads = arm.bench.options().threads;
  return threads.empty() ? 1 : threads.front();
}

Json arm_json(const Arm& arm, double one_stage_fps) {
  const Figures& f = arm.figures;
  const double fps = median(f.fps);
  const std::string name = arm.bench.network() + " " + std::to_string(arm.bench.size());
  const int threads = threads_of(arm);
  return {{"arm", name + " x" + std::to_string(arm.bench.stages()) +
                      (threads > 1 ? "x" + std::to_string(threads) : "") +
                      (arm.capture.empty() ? "" : " " + arm.capture)},
          {"network", arm.bench.network()},
          {"size", arm.bench.size()},
          {"stages", arm.bench.stages()},
          {"threads", threads},
          {"capture", arm.capture.empty() ? "auto" : arm.capture},
          {"cut", arm.bench.cut()},
          {"fps", fps},
          {"speedup", one_stage_fps > 0 ? fps / one_stage_fps : 1.0},
          {"step_ms", fps > 0 ? 1e3 / fps : 0},
          {"T_ms", median(f.T)},
          {"T_over_N_ms", median(f.T_over_N)},
          {"bottleneck_ms", median(f.bottleneck)},
          {"handoff_percent", median(f.handoff)},
          {"latency_p50_ms", median(f.p50)},
          {"latency_p99_ms", median(f.p99)}};
}

void print_row(const Json& arm) {
  std::printf("%-9s %5lld %6lld %7lld %7s %9.1f %8.2f %9.3f %9.3f %10.3f %10.2f %9.3f %9.3f\n",
              arm["network"].get<std::string>().c_str(), arm["size"].get<long long>(),
              arm["stages"].get<long long>(), arm["threads"].get<long long>(),
              arm["capture"].get<std::string>().c_str(), arm["fps"].get<double>(),
              arm["speedup"].get<double>(), arm["T_ms"].get<double>(),
              arm["T_over_N_ms"].get<double>(), arm["bottleneck_ms"].get<double>(),
              arm["handoff_percent"].get<double>(), arm["latency_p50_ms"].get<double>(),
              arm["latency_p99_ms"].get<double>());
}

/// Ours with the most stages beside PyTorch's best and the limit, a row a network and size.
Json comparison(const std::vector<Arm>& arms, const std::vector<PeerArm>& peers, double peak) {
  Json rows = Json::array();
  const Arm* one_stage = nullptr;
  for (const Arm& arm : arms) {
    if (threads_of(arm) > 1) continue;
    if (arm.bench.stages() == 1) one_stage = &arm;
    const bool widest = &arm == &arms.back() || (&arm)[1].bench.stages() == 1;
    if (!widest) continue;
    double best = 0;
    std::string how;
    Json modes = Json::object();
    for (const PeerArm& peer : peers) {
      if (peer.network != arm.bench.network() || peer.size != arm.bench.size()) continue;
      const double ms = median(peer.ms);
      const std::string name = peer.mode + " x" + std::to_string(peer.threads);
      modes[name] = std::isnan(ms) ? Json() : Json(ms);
      if (std::isnan(ms) || (best > 0 && ms >= best)) continue;
      best = ms;
      how = name;
    }
    const double mine = 1e3 / median(arm.figures.fps), flops = flops_of(arm.bench),
                 limit = limit_ms(flops, peak);
    rows.push_back({{"network", arm.bench.network()},
                    {"size", arm.bench.size()},
                    {"stages", arm.bench.stages()},
                    {"capture", arm.capture.empty() ? "auto" : arm.capture},
                    {"step_ms", mine},
                    {"pytorch_ms", best},
                    {"pytorch_best", how},
                    {"pytorch", modes},
                    {"over_pytorch", best / mine},
                    {"limit_ms", limit},
                    {"over_limit", mine / limit},
                    {"one_stage_over_limit", over_peak(*one_stage, flops)}});
  }
  return rows;
}

void print_comparison(const Json& rows) {
  std::printf("\n%-9s %5s %6s %7s %9s %11s %-18s %6s %9s %10s %10s\n", "network", "size", "stages",
              "capture", "step ms", "PyTorch ms", "its best", "ratio", "limit ms", "over limit",
              "one stage");
  for (const Json& row : rows) {
    std::printf("%-9s %5lld %6lld %7s %9.3f %11.3f %-18s %6.2f %9.3f %10.2f %10.2f\n",
                row["network"].get<std::string>().c_str(), row["size"].get<long long>(),
                row["stages"].get<long long>(), row["capture"].get<std::string>().c_str(),
                row["step_ms"].get<double>(), row["pytorch_ms"].get<double>(),
                row["pytorch_best"].get<std::string>().c_str(), row["over_pytorch"].get<double>(),
                row["limit_ms"].get<double>(), row["over_limit"].get<double>(),
                row["one_stage_over_limit"].get<double>());
  }
}

}  // namespace

Json bench_framerate(const BenchArguments& arguments) {
  std::vector<Arm> arms = make_arms(arguments);
  std::vector<PeerArm> peers = make_peer_arms(arguments);
  std::unique_ptr<PyTorch> pytorch;
  if (!arguments.pytorch.empty()) pytorch = std::make_unique<PyTorch>(arguments.pytorch);
  std::vector<double> peaks;
  for (std::int64_t round = 0; round < arguments.rounds; ++round) {
    const auto progress = [&](std::size_t i) {
      std::fprintf(stderr, "\rround %lld of %lld, arm %zu of %zu \x1b[K",
                   static_cast<long long>(round + 1), static_cast<long long>(arguments.rounds),
                   i + 1, arms.size() + peers.size());
    };
    for (std::size_t i = 0; i < arms.size(); ++i) {
      progress(i);
      peaks.push_back(kernels::fma_peak());
      arms[i].figures.peak.push_back(peaks.back());
      arms[i].figures.add(arms[i].bench.turn(arguments.seconds));
    }
    for (std::size_t i = 0; i < peers.size(); ++i) {
      progress(arms.size() + i);
      peers[i].ms.push_back(pytorch->step_ms(bench_network(peers[i].network), peers[i].size,
                                             peers[i].mode, peers[i].threads, arguments.seconds));
    }
  }
  std::fputs("\r\x1b[K", stderr);
  std::printf("%-9s %5s %6s %7s %7s %9s %8s %9s %9s %10s %10s %9s %9s\n", "network", "size",
              "stages", "threads", "capture", "frames/s", "speed-up", "T ms", "T/N ms",
              "slowest ms", "hand-off %", "p50 ms", "p99 ms");
  Json results = {{"suite", "framerate"},
                  {"rounds", arguments.rounds},
                  {"seconds", arguments.seconds},
                  {"memory_format", arguments.memory_format},
                  {"arms", Json::array()}};
  double one_stage = 0;
  int most = 1;
  for (const Arm& arm : arms) {
    if (arm.bench.stages() == 1 && threads_of(arm) == 1) one_stage = median(arm.figures.fps);
    most = std::max(most, arm.bench.stages());
    results["arms"].push_back(arm_json(arm, one_stage));
    print_row(results["arms"].back());
  }
  if (pytorch) {
    results["peak_gflops_a_core"] = median(peaks) / 1e9;
    results["pytorch"] = comparison(arms, peers, median(peaks));
    print_comparison(results["pytorch"]);
  }
  results["provenance"] = app::provenance(most);
  return results;
}

}  // namespace millrace::bench
