// `millrace bench learning`: how well each rule learns from a stream, by number of stages,
// optimizer and correction, at equal samples and at equal wall-clock. Every arm's rate is tuned on
// the same small grid with seed 0; figures are means over the seeds at that rate.
#include <ATen/ATen.h>      // the mean frame
#include <ATen/Parallel.h>  // one thread an arm
#include <unistd.h>         // whether somebody watches

#include <algorithm>  // find
#include <atomic>     // next job
#include <cmath>      // isfinite
#include <cstdio>     // table
#include <limits>     // diverged
#include <mutex>      // progress
#include <numeric>    // means
#include <thread>     // one a core

#include "engine/pipeline/pinning.h"
#include "io/plot/plot.h"
#include "tools/bench/bench.h"
#include "tools/bench/learning_arm.h"
#include "tools/app/config/config.h"
#include "tools/app/provenance.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kFrames = 600;
constexpr int kWidth = 48, kHeight = 36;
constexpr std::uint64_t kSeeds = 3;
constexpr double kSlope = 0.3;  ///< of the leaky ReLUs

stages::OptimizerSpec adam(double beta1, double beta2) {
  return {.kind = "adam", .beta1 = beta1, .beta2 = beta2};
}
const stages::OptimizerSpec kMomentum{.kind = "sgd", .momentum = 0.9};

/// The same steps for all; sgd's rates are larger by nature.
std::vector<double> grid(const LearningArm& arm) {
  if (arm.optimizer.kind == "sgd") return {0.008, 0.025, 0.08, 0.25};
  return {1e-4, 3e-4, 1e-3, 3e-3};
}

/// The rules on one network beside sequential on the same.
void add_networks(const LearningStream& stream, const std::string& norm, double slope,
                  std::vector<LearningArm>& arms) {
  const auto add = [&](const char* schedule, int stages, const char* correction, bool half) {
    arms.push_back({&stream, schedule, stages, half ? adam(0.5, 0.999) : adam(0.9, 0.999),
                    half ? "adam, beta1 0.5" : "adam", correction, norm, slope});
  };
  const bool has_others = norm == "none";  // among the arms above
  if (!has_others) cli::add("sequential", 1, "none", false);
  for (const int stages : {2, 8}) {
    if (!has_others) cli::add("partime", stages, "none", false);
    if (!has_others) cli::add("partime", stages, "local", false);
    cli::add("partime", stages, "inverse-age", true);
    cli::add("pipedream", stages, "inverse-age", true);
  }
}

/// Every arm on `stream`.
std::vector<LearningArm> arms_on(const LearningStream& stream) {
  std::vector<LearningArm> arms;
  const auto add = [&](const std::string& schedule, int stages, const std::string& correction,
                       bool momentum, int every = 1) {
    // Adam's own momentum helps where gradients are fresh and hurts where they are old.
    arms.push_back({&stream, schedule, stages, momentum ? adam(0.9, 0.999) : adam(0.0, 0.99),
                    momentum ? "adam" : "adam, beta1 0", correction, "none", 0, every});
  };
  cli::add("sequential", 1, "none", true);
  for (const int every : {2, 4, 8}) cli::add("sequential", 1, "none", true, every);
  for (const int every : {1, 2, 4, 8}) cli::add("sequential", 1, "none", false, every);
  for (const int stages : {2, 4, 8}) {
    cli::add("partime", stages, "none", true);
    for (const char* correction :
         {"none", "inverse-age", "pipemare", "weight-prediction", "gap-aware", "dc-asgd"})
      cli::add("partime", stages, correction, false);
    cli::add("partime", stages, "local", true);
  }
  for (const char* schedule : {"pb", "pipedream", "2bw"}) {
    cli::add(schedule, 4, "none", false);
    cli::add(schedule, 4, "inverse-age", false);
    cli::add(schedule, 4, "local", true);
  }
  cli::add("pb", 4, "discrepancy", false);
  for (const int stages : {2, 8}) {
    for (const char* schedule : {"pb", "pipedream"}) cli::add(schedule, stages, "inverse-age", false);
  }
  add_networks(stream, "none", 0, arms);
  for (const double slope : {0.0, kSlope}) {
    if (stream.classes == 0) add_networks(stream, "instance", slope, arms);
  }
  for (const char* correction : {"none", "spike-compensation", "local"})
    arms.push_back({&stream, "partime", 4, kMomentum, "sgd, momentum 0.9", correction});
  return arms;
}

struct Job {
  std::size_t arm = 0;
  double lr = 0;
  std::uint64_t seed = 0;
  LearningScore score;
};

/// Runs all jobs, as many at a time as there are cores.
void run_jobs(const std::vector<LearningArm>& arms, std::vector<Job>& jobs, const char* what) {
  std::atomic<std::size_t> next{0}, done{0};
  std::mutex failure_mutex;
  std::exception_ptr failure;
  const bool watched = isatty(STDERR_FILENO);
  const auto work = [&] {
    at::set_num_threads(1);  // this thread's own; the arms are the parallelism
    for (std::size_t i; (i = next++) < jobs.size();) {
      try {
        jobs[i].score = run_arm(arms[jobs[i].arm], jobs[i].lr, jobs[i].seed);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        failure = std::current_exception();
        return;
      }
      ++done;
      if (watched)
        std::fprintf(stderr, "\r%s: run %zu of %zu \x1b[K", what, done.load(), jobs.size());
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < engine::usable_cores(); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (watched) std::fputs("\r\x1b[K", stderr);
  if (failure) std::rethrow_exception(failure);
}

/// By arm: the rate of the grid with the least mean loss.
std::vector<double> tune(const std::vector<LearningArm>& arms, std::vector<Job>& jobs) {
  for (std::size_t arm = 0; arm < arms.size(); ++arm) {
    for (const double lr : grid(arms[arm])) jobs.push_back({arm, lr, 0, {}});
  }
  run_jobs(arms, jobs, "tuning rates");
  std::vector<double> best(arms.size(), 0), least(arms.size(), 1e300);
  for (const Job& job : jobs) {
    if (!std::isfinite(job.score.mean) || job.score.mean >= least[job.arm]) continue;
    least[job.arm] = job.score.mean;
    best[job.arm] = job.lr;
  }
  return best;
}

template <class Figure>
Json over_seeds(const std::vector<const LearningScore*>& scores, const Figure& figure) {
  double sum = 0, least = 1e300, most = 0;
  for (const LearningScore* score : scores) {
    const double value = figure(*score);
    sum += value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  return {{"mean", sum / double(scores.size())}, {"min", least}, {"max", most}};
}

Json arm_json(const LearningArm& arm, double lr, const std::vector<const LearningScore*>& scores) {
  return {{"arm", arm.name()},
          {"stream", arm.stream->name},
          {"schedule", arm.schedule},
          {"stages", arm.stages},
          {"optimizer", arm.optimizer_name},
          {"correction", arm.correction},
          {"norm", network_text(arm.norm, arm.slope)},
          {"every", arm.every},
          {"lr", lr},
          {"loss", over_seeds(scores, [](const auto& s) { return s.mean; })},
          {"last_100", over_seeds(scores, [](const auto& s) { return s.last; })},
          {"held_out", over_seeds(scores, [](const auto& s) { return s.held_out; })},
          {"held_out_hits", over_seeds(scores, [](const auto& s) { return s.held_out_hits; })},
          {"forgetting", over_seeds(scores, [](const auto& s) { return s.forgetting; })},
          {"roll_backs", over_seeds(scores, [](const auto& s) { return double(s.roll_backs); })},
          {"no_numbers", over_seeds(scores, [](const auto& s) { return double(s.no_numbers); })}};
}

void print_arm(const Json& arm) {
  const auto figure = [&](const char* name) { return arm[name]["mean"].get<double>(); };
  const int every = arm["every"];
  std::printf("%-7s %-10s %2d %-18s %-18s %-24s %-9s %7.0e %8.4f %8.4f %8.4f",
              arm["stream"].get<std::string>().c_str(), arm["schedule"].get<std::string>().c_str(),
              arm["stages"].get<int>(), arm["optimizer"].get<std::string>().c_str(),
              arm["correction"].get<std::string>().c_str(), arm["norm"].get<std::string>().c_str(),
              frames_text(every).c_str(), arm["lr"].get<double>(), figure("loss"),
              figure("last_100"), figure("held_out"));
  if (figure("forgetting") > 0) std::printf(" %7.2f", figure("forgetting"));
  if (arm["stream"] == "labels") std::printf(" %7.0f %%", 100 * figure("held_out_hits"));
  std::printf("\n");
}

/// The mean frame's losses, which a network must beat.
Json baseline(const LearningStream& stream) {
  at::Tensor sum = at::zeros_like(stream.targets[0]);
  std::vector<double> losses;
  for (std::size_t n = 0; n < stream.targets.size(); ++n) {
    losses.push_back((stream.targets[n] - sum / double(std::max<std::size_t>(n, 1)))
                         .square()
                         .mean()
                         .item<double>());
    sum += stream.targets[n];
  }
  const auto last = std::min<std::ptrdiff_t>(100, std::ptrdiff_t(losses.size()));
  const auto mean = [](auto begin, auto end) {
    return std::accumulate(begin, end, 0.0) / double(end - begin);
  };
  return {{"stream", stream.name},
          {"uri", stream.uri},
          {"classes", stream.classes},
          {"mean_frame",
           {{"loss", mean(losses.begin(), losses.end())},
            {"last_100", mean(losses.end() - last, losses.end())}}}};
}

std::vector<LearningStream> read_streams(const BenchArguments& arguments, std::int64_t frames) {
  const auto wanted = [&](const char* name) {
    const auto& names = arguments.streams;
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  };
  const std::int64_t turn = std::max<std::int64_t>(frames / 6, 1);
  std::vector<LearningStream> streams;
  if (wanted("vtest")) {
    streams.push_back(read_stream("vtest",
                                  "file:///usr/share/doc/opencv-doc/examples/data/vtest.avi", 0,
                                  std::min<std::int64_t>(frames, 600), kWidth, kHeight));
  }
  if (wanted("film")) {
    streams.push_back(read_stream("film",
                                  "file:///usr/share/doc/opencv-doc/examples/data/Megamind.avi", 0,
                                  std::min<std::int64_t>(frames, 220), kWidth, kHeight));
  }
  if (wanted("scenes")) {
    streams.push_back(read_stream("scenes",
                                  "synth:shapes?scenes=" + std::to_string(kLearningScenes) +
                                      "&switch=" + std::to_string(turn) + "&drift=0.4",
                                  turn, frames, kWidth, kHeight));
  }
  if (wanted("labels")) {
    // In turn, a learner that drops every second frame would meet half of the classes.
    streams.push_back(read_stream("labels", "synth:shapes?scenes=4&switch=4&order=random&drift=0.6",
                                  0, frames, kWidth, kHeight, /*labels=*/true));
  }
  return streams;
}

}  // namespace

Json bench_learning(const BenchArguments& arguments) {
  const std::int64_t frames = arguments.frames > 0 ? arguments.frames : kFrames;
  const std::vector<LearningStream> streams = read_streams(arguments, frames);
  std::vector<LearningArm> arms;
  for (const LearningStream& stream : streams) {
    for (LearningArm& arm : arms_on(stream)) {
      const bool wanted = arm.name().find(arguments.arms) != std::string::npos;
      if (wanted && (arguments.stages == 0 || arm.stages <= arguments.stages))
        arms.push_back(std::move(arm));
    }
  }
  if (arms.empty())
    throw app::ConfigError("--arms: no arm of these streams has \"" + arguments.arms + "\" in its name");
  std::vector<Job> tuned, seeds;
  const std::vector<double> rates = tune(arms, tuned);
  for (std::size_t arm = 0; arm < arms.size(); ++arm) {
    for (std::uint64_t seed = 1; seed < kSeeds; ++seed)
      seeds.push_back({arm, rates[arm], seed, {}});
  }
  run_jobs(arms, seeds, "other seeds");
  Json results = {{"suite", "learning"},   {"frames", frames},
                  {"width", kWidth},       {"height", kHeight},
                  {"seeds", kSeeds},       {"streams", Json::array()},
                  {"arms", Json::array()}, {"provenance", app::provenance(1)}};
  std::printf("%-7s %-10s %2s %-18s %-18s %-24s %-9s %7s %8s %8s %8s %7s\n", "stream", "schedule",
              "N", "optimizer", "correction", "norm", "frames", "rate", "loss", "last 100",
              "held out", "return");
  for (const LearningStream& stream : streams) {
    results["streams"].push_back(baseline(stream));
    const Json& mean = results["streams"].back()["mean_frame"];
    std::printf("%-7s always the mean frame %63.4f %8.4f\n", stream.name.c_str(),
                mean["loss"].get<double>(), mean["last_100"].get<double>());
  }
  for (std::size_t arm = 0; arm < arms.size(); ++arm) {
    std::vector<const LearningScore*> scores;
    for (const Job& job : tuned) {
      if (job.arm == arm && job.lr == rates[arm]) scores.push_back(&job.score);
    }
    for (const Job& job : seeds) {
      if (job.arm == arm) scores.push_back(&job.score);
    }
    results["arms"].push_back(arm_json(arms[arm], rates[arm], scores));
    print_arm(results["arms"].back());
  }
  return results;
}

Json with_learning(Json earlier, const Json& newer) {
  const auto put = [](Json& list, const Json& item, const std::vector<const char*>& keys) {
    for (Json& old : list) {
      const bool same = std::all_of(keys.begin(), keys.end(),
                                    [&](const char* key) { return old[key] == item[key]; });
      if (same) return void(old = item);
    }
    list.push_back(item);
  };
  for (Json& arm : earlier["arms"]) {
    if (!arm.contains("norm")) arm["norm"] = "none";  // what earlier versions ran
  }
  for (const Json& stream : newer["streams"]) put(earlier["streams"], stream, {"stream"});
  for (const Json& arm : newer["arms"]) {
    put(earlier["arms"], arm,
        {"stream", "schedule", "stages", "optimizer", "correction", "norm", "every"});
  }
  earlier["provenance"] = newer["provenance"];
  return earlier;
}

}  // namespace millrace::bench
