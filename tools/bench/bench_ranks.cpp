// `millrace bench ranks`: what it costs to be several processes. Runs are `millrace run`'s own,
// under mpirun and alone, in turns.
#include <algorithm>
#include <cstdio>
#include <map>

#include "engine/format.h"
#include "engine/pipeline/pinning.h"
#include "engine/schedule/launch_groups.h"
#include "engine/simulate/simulator.h"
#include "engine/trainer/profiler.h"
#include "engine/trainer/stage_profiler.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_arm.h"
#include "tools/bench/other_load.h"
#include "tools/bench/ranks_launch.h"
#include "tools/app/config/config.h"
#include "tools/app/provenance.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::format;

constexpr int kMicrobatches = 4;
constexpr std::int64_t kFewest = 48;  ///< frames of a run
const RankPlace kShared{.name = "shared memory"};
const RankPlace kCable{.name = "veth", .hosts = 2};

RankPlace delayed(int hosts, double ms) {
  return {.name = format("%g ms", ms), .hosts = hosts, .delay_ms = ms};
}

/// Where the network `basic` is cut: at equal numbers of its 20 modules.
std::vector<int> even_cut(int stages) {
  constexpr int kModules = 20;
  std::vector<int> cut;
  for (int stage = 1; stage < stages; ++stage) cut.push_back(2 * (stage * kModules / 2 / stages));
  return cut;
}

std::vector<std::string> settings(const std::string& schedule, int stages, std::int64_t size) {
  const std::string side = std::to_string(size);
  return {"source.uri=synth:shapes",
          "source.pace=asap",
          "source.width=" + side,
          "source.height=" + side,
          "model.layers=10",
          "model.features=16",
          "model.kernel=5",
          "correction.kind=none",
          "guard.kind=none",
          "optimizer.kind=sgd",
          "optimizer.lr=0.01",
          "pipeline.capture=graph",
          "pipeline.schedule=" + schedule,
          "pipeline.microbatches=" + std::to_string(kMicrobatches),
          "pipeline.stages=" + std::to_string(stages),
          "pipeline.cut=" + Json(even_cut(stages)).dump()};
}

/// One thing that is measured in turns with others.
struct Arm {
  std::string kind;  ///< handoff, step, pytorch, delay
  std::string schedule = "sequential";
  std::int64_t size = 64;
  RankPlace place = kShared;
  int ranks = 2;
  std::int64_t bytes = 0;
  std::int64_t frames = 0;
  std::map<std::string, std::vector<double>> figures;

  std::string name() const {
    const std::string what = kind == "handoff" ? "hand-off, " + place.name
                             : kind == "delay" ? schedule + ", " + place.name
                             : kind == "step"  ? schedule + ", 2 ranks"
                                               : schedule + ", PyTorch";
    return what + format(", %d px", int(size));
  }
};

double ms_a_frame(const Json& report) {
  return 1e3 * report["run"]["duration_s"].get<double>() /
         report["frames"]["trained"].get<double>();
}

/// Without what a run takes to start, fill and drain, which `start` has, too.
double steady_ms_a_frame(const Json& whole, const Json& start) {
  const auto more = [&](const char* table, const char* key) {
    return whole[table][key].get<double>() - start[table][key].get<double>();
  };
  return 1e3 * more("run", "duration_s") / more("frames", "trained");
}

/// Both ways in the mean, which no difference of two clocks changes.
double hop_ms(const Json& report, std::int64_t& bytes) {
  double sum = 0;
  int ways = 0;
  for (const Json& rank : report["ranks"]) {
    for (const Json& link : rank["links"]) {
      if (link["carries"] != "activation" && link["carries"] != "gradient") continue;
      sum += link["ms"].get<double>();
      bytes = link["bytes"];
      ++ways;
    }
  }
  if (ways != 2)
    throw std::runtime_error("two links were to be timed, not " + std::to_string(ways));
  return sum / ways;
}

class Bench {
 public:
  explicit Bench(const BenchArguments& arguments)
      : arguments_(arguments),
        seconds_(arguments.quick ? arguments.seconds : 4 * arguments.seconds),
        lacks_hosts_(launcher_.lacks_hosts()) {
    if (!lacks_hosts_.empty())
      std::fprintf(stderr, "no hosts on this machine, so none are measured: %s\n",
                   lacks_hosts_.c_str());
    make_arms();
    std::erase_if(arms_, [&](const Arm& arm) {
      return arm.name().find(arguments_.arms) == std::string::npos;
    });
    if (arms_.empty())
      throw app::ConfigError("--arms: no arm has \"" + arguments.arms + "\" in its name");
  }

  void take_turns(std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) {
      in_process_ = engine::plan::fit_link(engine::measure_hand_off().points);
      for (Arm& arm : arms_) {
        std::fprintf(stderr, "\rround %lld of %lld, %s \x1b[K", static_cast<long long>(round + 1),
                     static_cast<long long>(rounds), arm.name().c_str());
        take_turn(arm);
      }
    }
    std::fputs("\r\x1b[K", stderr);
  }

  Json arms() const {
    Json all = Json::array();
    for (const Arm& arm : arms_) all.push_back(arm_json(arm));
    return all;
  }
  const std::string& lacks_hosts() const { return lacks_hosts_; }

 private:
  void make_arms() {
    const bool hosts = lacks_hosts_.empty();
    for (const std::int64_t size : sizes_or(arguments_, {16, 32, 64})) {
      arms_.push_back({.kind = "handoff", .size = size});
      if (hosts) arms_.push_back({.kind = "handoff", .size = size, .place = kCable});
    }
    const std::int64_t size = sizes_or(arguments_, {64}).back();
    for (const char* schedule : {"partime", "gpipe", "1f1b"}) {
      if (!arguments_.quick || schedule == std::string("gpipe"))
        arms_.push_back({.kind = "step", .schedule = schedule, .size = size});
    }
    for (const char* schedule : {"gpipe", "1f1b"}) {
      if (!arguments_.pytorch.empty())
        arms_.push_back({.kind = "pytorch", .schedule = schedule, .size = size});
    }
    if (!hosts) return;
    for (const double ms : {1.0, 5.0}) {
      for (const char* schedule : {"partime", "pipedream", "gpipe", "1f1b"}) {
        if (arguments_.quick && (schedule != std::string("1f1b") || ms > 1)) continue;
        arms_.push_back({.kind = "delay",
                         .schedule = schedule,
                         .size = size,
                         .place = delayed(4, ms),
                         .ranks = 4});
      }
    }
  }

  /// As many frames as take so long, in whole minibatches.
  std::int64_t app::frames_of(Arm& arm, int stages) {
    if (arm.frames == 0) {
      const Json report =
          launcher_.run(arm.place, arm.ranks, settings(arm.schedule, stages, arm.size), kFewest);
      const double fits = 1e3 * seconds_ / ms_a_frame(report);
      // Where the fewest are taken off again, there must be many more.
      const std::int64_t least = arm.kind == "delay" ? 8 * kFewest : kFewest;
      arm.frames = std::max(least, std::int64_t(std::min(fits, 1e5)) / 16 * 16);
    }
    return arm.frames;
  }

  Json learn(Arm& arm, int stages, int ranks) {
    const std::int64_t frames = app::frames_of(arm, stages);
    return launcher_.run(arm.place, ranks, settings(arm.schedule, stages, arm.size), frames);
  }

  void take_turn(Arm& arm) {
    if (arm.kind == "handoff") {
      arm.figures["ours_ms"].push_back(hop_ms(learn(arm, 2, 2), arm.bytes));
      const PingPong bare = launcher_.ping_pong(arm.place, arm.bytes);
      arm.figures["bare_ms"].push_back(1e-3 * bare.us);
      arm.figures["bare_cold_ms"].push_back(1e-3 * bare.cold_us);
      arm.figures["in_process_ms"].push_back(in_process_.ms(double(arm.bytes)));
    } else if (arm.kind == "step") {
      arm.figures["one_process_ms"].push_back(ms_a_frame(learn(arm, 2, 1)));
      arm.figures["ours_ms"].push_back(ms_a_frame(learn(arm, 2, 2)));
    } else if (arm.kind == "pytorch") {
      arm.figures["ours_ms"].push_back(ms_a_frame(learn(arm, 2, 2)));
      arm.figures["pytorch_ms"].push_back(launcher_.pytorch_ms(
          arguments_.pytorch, arm.size, kMicrobatches, seconds_, {arm.schedule})[0]);
    } else {
      arm.figures["predicted_ms"].push_back(predicted_ms(arm));
      const Json whole = learn(arm, arm.ranks, arm.ranks);
      arm.figures["ours_ms"].push_back(steady_ms_a_frame(
          whole, launcher_.run(arm.place, arm.ranks, settings(arm.schedule, arm.ranks, arm.size),
                               kFewest)));
    }
  }

  /// What the simulator makes of stages measured here and a message measured between two such
  /// hosts.
  double predicted_ms(Arm& arm) {
    engine::TrainerOptions options;
    options.schedule = arm.schedule;
    options.stages = arm.ranks;
    options.microbatches = kMicrobatches;
    options.cut = even_cut(arm.ranks);
    options.capture = engine::Capture::graph;
    const BenchArm bench("basic", arm.size, options);
    const engine::Schedule schedule = engine::for_recording(engine::schedule_of(bench.options()));
    const std::vector<engine::plan::StageCosts> costs =
        engine::measure_stages(bench.options(), seconds_ / 4);
    const double message = message_ms(arm);
    double stages = 0;
    for (const engine::plan::StageCosts& stage : costs) stages += stage.ms.total();
    engine::SimulationInput input;
    input.samples = engine::enough_samples(schedule);
    input.stages = costs;
    input.delay_ms = arm.place.delay_ms;
    input.cores = engine::usable_cores();
    input.machine.levels.front().link.latency_ms = message / 2;  // of each end
    arm.figures["message_ms"].push_back(message);
    arm.figures["stages_ms"].push_back(stages);
    return simulate(schedule, input).period_ms;
  }

  /// What a message costs beside the delay. Hosts of one machine have no cable: it is work of the
  /// cores. A frame of `sequential` takes so much longer over two hosts, where it waits for two
  /// messages, than in one process.
  double message_ms(const Arm& arm) {
    const auto steady = [&](int ranks) {
      const RankPlace place = delayed(2, arm.place.delay_ms);
      const std::vector<std::string> keys = settings("sequential", 2, arm.size);
      const Json whole = launcher_.run(place, ranks, keys, 5 * kFewest);
      return steady_ms_a_frame(whole, launcher_.run(place, ranks, keys, kFewest));
    };
    return std::max(0.0, (steady(2) - steady(1)) / 2 - arm.place.delay_ms);
  }

  Json arm_json(const Arm& arm) const {
    Json row = {{"arm", arm.name()},       {"kind", arm.kind}, {"schedule", arm.schedule},
                {"place", arm.place.name}, {"size", arm.size}, {"ranks", arm.ranks}};
    if (arm.bytes > 0) row["bytes"] = arm.bytes;
    for (const auto& [name, values] : arm.figures) row[name] = median(values);
    const auto over = [&](const char* other) {
      std::vector<double> ratios;
      const std::vector<double>&ours = arm.figures.at("ours_ms"), &theirs = arm.figures.at(other);
      for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / theirs[i]);
      return median(ratios);
    };
    row["ratio"] = over(arm.kind == "handoff"   ? "bare_ms"
                        : arm.kind == "step"    ? "one_process_ms"
                        : arm.kind == "pytorch" ? "pytorch_ms"
                                                : "predicted_ms");
    return row;
  }

  const BenchArguments& arguments_;
  const double seconds_;
  RankLauncher launcher_;
  const std::string lacks_hosts_;
  std::vector<Arm> arms_;
  engine::plan::Link in_process_;
};

}  // namespace

Json bench_ranks(const BenchArguments& arguments) {
  const std::int64_t rounds = arguments.quick ? 1 : arguments.rounds;
  Bench bench(arguments);
  const OtherLoad others;
  bench.take_turns(rounds);
  Json results = {{"suite", "ranks"},
                  {"rounds", rounds},
                  {"seconds", arguments.seconds},
                  {"microbatches", kMicrobatches},
                  {"lacks_hosts", bench.lacks_hosts()},
                  {"others_cores", others.cores()},
                  {"arms", bench.arms()}};
  std::printf("%-34s %10s %10s %8s\n", "", "ours ms", "other ms", "ratio");
  for (const Json& arm : results["arms"]) {
    const double ours = arm["ours_ms"], ratio = arm["ratio"];
    std::printf("%-34s %10.3f %10.3f %8.3f\n", arm["arm"].get<std::string>().c_str(), ours,
                ours / ratio, ratio);
  }
  results["provenance"] = app::provenance(2);
  return results;
}

}  // namespace millrace::bench
