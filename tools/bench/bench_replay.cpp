// `millrace bench replay`: what learning again from kept samples buys on a live stream whose scenes
// come back, at equal wall-clock, and what it costs the fresh frames. Kinds take turns; each round
// begins with another one, so that four rounds are fair to who comes after an arm that idles.
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "io/plot/plot.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_arm.h"
#include "tools/app/config/replay.h"
#include "tools/app/provenance.h"
#include "tools/app/run.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kTurn = 100;  ///< frames a scene stays; two take turns
constexpr std::int64_t kFrames = 800;
constexpr std::int64_t kEdge = 20;    ///< frames that tell how well a scene is known
constexpr std::int64_t kBucket = 10;  ///< frames a point of the curve
constexpr double kFps = 50;

/// What rounds of one kind have shown.
struct Arm {
  std::string kind;
  std::vector<double> mean, last, again, left, p50, p99, replayed, share, dropped;
  std::vector<std::vector<double>> curves;
};

double mean(const std::vector<double>& losses, std::int64_t begin, std::int64_t end) {
  return std::accumulate(losses.begin() + begin, losses.begin() + end, 0.0) / double(end - begin);
}

app::Config gst::config_of(const std::string& kind, std::int64_t frames, std::int64_t stages,
                 std::int64_t round) {
  app::Config config;
  config.name = "bench replay";
  config.set("source.uri", "synth:shapes?scenes=2&switch=" + std::to_string(kTurn) +
                               "&frames=" + std::to_string(frames));
  config.set("source.pace", "live");
  config.set("source.fps", std::to_string(kFps));
  config.set("source.width", "64");
  config.set("source.height", "48");
  config.set("source.seed", std::to_string(round));
  config.set("model.seed", std::to_string(round));
  config.set("pipeline.stages", std::to_string(stages));
  if (stages == 2) config.set("pipeline.cut", "[4]");  // the same in every round
  config.set("replay.kind", kind);
  app::settle(config);
  return config;
}

void take_turn(Arm& arm, const app::Config& config) {
  std::vector<double> losses;
  app::Run run(config);
  run.on_prediction([&](const app::Prediction& prediction) { losses.push_back(prediction.loss); });
  run.learn();
  const Json report = Json::parse(run.report());
  const auto seen = std::int64_t(losses.size());
  // From its second stay on a scene is an old acquaintance.
  std::vector<double> left, again;
  for (std::int64_t back = 2 * kTurn; back + kEdge <= seen; back += kTurn) {
    left.push_back(mean(losses, back - kTurn - kEdge, back - kTurn));
    again.push_back(mean(losses, back, back + kEdge));
  }
  const auto all = [](const std::vector<double>& v) { return mean(v, 0, std::int64_t(v.size())); };
  arm.mean.push_back(all(losses));
  arm.last.push_back(report["loss"]["recent"]);
  arm.left.push_back(left.empty() ? 0 : all(left));
  arm.again.push_back(again.empty() ? 0 : all(again));
  arm.p50.push_back(report["latency_ms"]["p50"]);
  arm.p99.push_back(report["latency_ms"]["p99"]);
  arm.dropped.push_back(report["frames"]["dropped"]);
  const bool replays = report.contains("replay");
  arm.replayed.push_back(replays ? report["frames"]["replayed"].get<double>() : 0);
  arm.share.push_back(replays ? report["replay"]["share"].get<double>() : 0);
  std::vector<double> curve;
  for (std::int64_t at = 0; at + kBucket <= seen; at += kBucket)
    curve.push_back(mean(losses, at, at + kBucket));
  arm.curves.push_back(std::move(curve));
}

/// Point by point, of rounds as long as the shortest.
std::vector<double> middle(const std::vector<std::vector<double>>& curves) {
  std::size_t points = curves.front().size();
  for (const auto& curve : curves) points = std::min(points, curve.size());
  std::vector<double> all;
  for (std::size_t at = 0; at < points; ++at) {
    std::vector<double> values;
    for (const auto& curve : curves) values.push_back(curve[at]);
    all.push_back(median(values));
  }
  return all;
}

/// Medians over the rounds. `none`: the arm to hold latencies against, round by round.
Json arm_json(const Arm& arm, const Arm& none) {
  std::vector<double> p50, p99;
  for (std::size_t round = 0; round < arm.p99.size(); ++round) {
    p50.push_back(arm.p50[round] / none.p50[round]);
    p99.push_back(arm.p99[round] / none.p99[round]);
  }
  return {{"arm", arm.kind},
          {"loss_mean", median(arm.mean)},
          {"loss_last_100", median(arm.last)},
          {"loss_as_a_scene_left", median(arm.left)},
          {"loss_as_it_came_back", median(arm.again)},
          {"replayed", median(arm.replayed)},
          {"share", median(arm.share)},
          {"dropped", median(arm.dropped)},
          {"latency_p50_ms", median(arm.p50)},
          {"latency_p99_ms", median(arm.p99)},
          {"p50_over_none", median(p50)},
          {"p99_over_none", median(p99)},
          {"frames_a_point", kBucket},
          {"curve", middle(arm.curves)}};
}

void print_row(const Json& arm) {
  const auto figure = [&](const char* name) { return arm[name].get<double>(); };
  std::printf("%-10s %9.5f %9.5f %9.5f %9.5f %9.0f %6.2f %8.0f %7.2f %7.2f %7.3f %7.3f\n",
              arm["arm"].get<std::string>().c_str(), figure("loss_mean"), figure("loss_last_100"),
              figure("loss_as_a_scene_left"), figure("loss_as_it_came_back"), figure("replayed"),
              figure("share"), figure("dropped"), figure("latency_p50_ms"),
              figure("latency_p99_ms"), figure("p50_over_none"), figure("p99_over_none"));
}

}  // namespace

Json bench_replay(const BenchArguments& arguments) {
  const std::int64_t frames = arguments.frames > 0 ? arguments.frames : kFrames,
                     stages = arguments.stages > 0 ? arguments.stages : 2;
  std::vector<Arm> arms;
  for (const std::string& kind : app::replay_names()) arms.push_back({.kind = kind});
  for (std::int64_t round = 0; round < arguments.rounds; ++round) {
    for (std::size_t turn = 0; turn < arms.size(); ++turn) {
      Arm& arm = arms[(turn + std::size_t(round)) % arms.size()];
      std::fprintf(stderr, "\rround %lld of %lld, %s \x1b[K", static_cast<long long>(round + 1),
                   static_cast<long long>(arguments.rounds), arm.kind.c_str());
      take_turn(arm, gst::config_of(arm.kind, frames, stages, round));
    }
  }
  std::fputs("\r\x1b[K", stderr);
  std::printf("two scenes take turns of %lld frames at %g frames a second, %lld frames\n",
              static_cast<long long>(kTurn), kFps, static_cast<long long>(frames));
  std::printf("%-10s %9s %9s %9s %9s %9s %6s %8s %7s %7s %7s %7s\n", "", "mean", "last 100", "left",
              "back", "replayed", "share", "dropped", "p50 ms", "p99 ms", "p50/none", "p99/none");
  Json results = {
      {"suite", "replay"}, {"rounds", arguments.rounds}, {"frames", frames},     {"fps", kFps},
      {"turn", kTurn},     {"stages", stages},           {"arms", Json::array()}};
  for (const Arm& arm : arms) {
    results["arms"].push_back(arm_json(arm, arms.front()));
    print_row(results["arms"].back());
  }
  results["provenance"] = app::provenance(int(stages));
  return results;
}

void plot_replay(const Json& results, const std::string& path) {
  io::Chart chart{.title = "Two scenes that take turns: the loss as each comes back",
                  .x_label = "frame",
                  .y_label = "loss before learning from the frame",
                  .log_y = true};
  for (const Json& arm : results["arms"]) {
    io::Series series{.label = arm["arm"], .dashed = arm["arm"] == "none"};
    const double step = arm["frames_a_point"];
    for (std::size_t at = 0; at < arm["curve"].size(); ++at)
      series.points.emplace_back((double(at) + 0.5) * step, arm["curve"][at].get<double>());
    chart.series.push_back(std::move(series));
  }
  io::write_chart(chart, path);
}

}  // namespace millrace::bench
