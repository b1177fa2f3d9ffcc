// `millrace bench seeds`: what PipeDream, GPipe, 1F1B, interleaved 1F1B and 2BW claim, beside steps
// measured on this machine's cores, the simulator's predictions and bytes counted at the allocator.
#include <algorithm>
#include <cstdio>

#include "engine/format.h"
#include "engine/pipeline/pinning.h"
#include "engine/simulate/simulator.h"
#include "engine/trainer/profiler.h"
#include "engine/trainer/stage_profiler.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_arm.h"
#include "tools/bench/bench_memory.h"
#include "tools/bench/other_load.h"
#include "tools/bench/periods.h"
#include "tools/app/provenance.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::format;

constexpr int kVirtual = 2;          ///< interleaved: stages a worker
constexpr int kLeastUpdates = 8;     ///< of the pipeline, in a turn
constexpr double kPredicting = 0.2;  ///< of a turn

bool flushes(const std::string& schedule) {
  return schedule == "gpipe" || schedule == "1f1b" || schedule == "interleaved" ||
         schedule == "zb-h1";
}

/// The share of time that a worker waits, as the schedule's paper has it: (p-1)/(m+p-1), with v
/// chunks a worker (p-1)/(v m+p-1). None for those whose paper has no such formula.
double bubble_formula(const std::string& schedule, int p, int m) {
  if (!flushes(schedule)) return 0;
  const int chunks = schedule == "interleaved" ? kVirtual : 1;
  return double(p - 1) / (chunks * m + p - 1);
}

/// The same of the schedule's text, played against equal stages whose backward takes twice the
/// forward.
double bubble_of_equal_stages(const engine::Schedule& schedule) {
  engine::SimulationInput input{
      .samples = engine::enough_samples(schedule), .stages = {}, .machine = {}};
  for (int stage = 0; stage < schedule.stages; ++stage) {
    engine::plan::StageCosts costs;
    costs.ms = {.forward = 1,
                .input_gradient = stage > 0 ? 1.0 : 0.0,
                .weight_gradient = stage > 0 ? 1.0 : 2.0};
    input.stages.push_back(costs);
  }
  double work = 0;
  for (const engine::plan::StageCosts& costs : input.stages) work += costs.ms.total();
  return 1 - work / (double(schedule.workers.size()) * simulate(schedule, input).period_ms);
}

struct Arm {
  BenchArm bench;
  int workers, microbatches;
  std::vector<double> measured, predicted, work;
};

std::vector<Arm> make_arms(int workers, const std::vector<int>& microbatches, std::int64_t size) {
  std::vector<Arm> arms;
  std::vector<std::vector<int>> cuts(std::size_t(kVirtual * workers) + 1);  // one for all schedules
  for (const char* schedule : {"sequential", "partime", "pb", "pipedream", "2bw", "gpipe", "1f1b",
                               "interleaved", "zb-h1"}) {
    for (const int m : microbatches) {
      const bool groups = flushes(schedule) || schedule == std::string("2bw");
      if (!groups && m != microbatches.front()) continue;
      engine::TrainerOptions options;
      options.schedule = schedule;
      options.stages = schedule == std::string("interleaved") ? kVirtual * workers : workers;
      options.virtual_stages = kVirtual;
      options.microbatches = std::max(m, groups ? workers : 1);
      options.cut = cuts[std::size_t(options.stages)];
      arms.push_back({BenchArm("basic", size, options),
                      workers,
                      groups ? options.microbatches : 1,
                      {},
                      {},
                      {}});
      cuts[std::size_t(options.stages)] = arms.back().bench.cut();
    }
  }
  return arms;
}

void take_turn(Arm& arm, const engine::plan::Link& link, double seconds) {
  const engine::Schedule schedule = engine::schedule_of(arm.bench.options());
  const auto costs = engine::measure_stages(arm.bench.options(), kPredicting * seconds);
  arm.predicted.push_back(engine::predict(schedule, costs, link, engine::usable_cores()));
  Periods periods;
  arm.bench.turn(seconds, kLeastUpdates * schedule.group, &periods);
  arm.measured.push_back(periods.period_ms(std::size_t(schedule.group)));
  double work = 0;  // of all stages, a sample
  for (const engine::plan::StageCosts& stage : costs)
    work += stage.ms.forward + stage.ms.backward() + stage.ms.update / double(schedule.group);
  arm.work.push_back(work);
}

std::int64_t largest_stage(const engine::TrainerOptions& options) {
  std::int64_t most = 0;
  for (const engine::StageMemory& stage : memory_of(options)) most = std::max(most, stage.total());
  return most;
}

Json arm_json(const Arm& arm) {
  const std::string schedule = arm.bench.options().schedule;
  const double step = median(arm.measured);
  Json row = {
      {"arm", schedule + (arm.microbatches > 1 ? format(", m = %d", arm.microbatches) : "")},
      {"schedule", schedule},
      {"workers", arm.workers},
      {"microbatches", arm.microbatches},
      {"measured_ms", step},
      {"predicted_ms", median(arm.predicted)},
      {"work_ms", median(arm.work)},
      {"memory_bytes", largest_stage(arm.bench.options())}};
  if (flushes(schedule)) {
    row["bubble"] = {
        {"formula", bubble_formula(schedule, arm.workers, arm.microbatches)},
        {"equal_stages", bubble_of_equal_stages(engine::schedule_of(arm.bench.options()))},
        {"measured", 1 - median(arm.work) / (arm.workers * step)}};
  }
  return row;
}

const Json* find(const Json& arms, const std::string& schedule, int m = 0) {
  for (const Json& arm : arms) {
    if (arm["schedule"] == schedule && (m == 0 || arm["microbatches"] == m)) return &arm;
  }
  return nullptr;
}

/// The arm of `schedule` with the most microbatches that needs no more memory than `like`; null:
/// none does.
const Json* as_small_as(const Json& arms, const std::string& schedule, const Json& like) {
  const Json* most = nullptr;
  for (const Json& arm : arms) {
    if (arm["schedule"] == schedule && arm["memory_bytes"] <= like["memory_bytes"]) most = &arm;
  }
  return most;
}

/// What the stage with the most of it holds, by arm of the memory's results.
double largest(const Json& memory, const std::string& arm, const char* figure) {
  double most = 0;
  for (const Json& row : memory["arms"]) {
    if (row["arm"] != arm) continue;
    for (const Json& stage : row["stages"]) most = std::max(most, stage[figure].get<double>());
  }
  return most;
}

/// Older weight versions of stage 0, in its weights.
std::string stashed(const Json& memory, const std::string& arm) {
  for (const Json& row : memory["arms"]) {
    if (row["arm"] != arm) continue;
    const Json& first = row["stages"][0];
    return format("%.2f", first["stashes"].get<double>() / first["weights"].get<double>());
  }
  return "-";
}

/// [{"seed", "claim", "published", "predicted", "measured"}]: ratios and shares as texts.
Json claims_of(const Json& arms, const Json& memory, int p, int m) {
  Json claims = Json::array();
  const auto add = [&](const char* seed, const std::string& claim, const std::string& published,
                       const std::string& predicted, const std::string& measured) {
    claims.push_back({{"seed", seed},
                      {"claim", claim},
                      {"published", published},
                      {"predicted", predicted},
                      {"measured", measured}});
  };
  const auto ratio = [&](const Json* a, const Json* b, const char* kind) {
    return a && b ? format("%.2f", (*a)[kind].get<double>() / (*b)[kind].get<double>())
                  : std::string("-");
  };
  const Json *gpipe = find(arms, "gpipe", m), *f1b = find(arms, "1f1b", m),
             *interleaved = find(arms, "interleaved", m), *two = find(arms, "2bw", m),
             *dream = find(arms, "pipedream");
  for (const auto& [seed, arm] :
       {std::pair("GPipe", gpipe), {"1F1B", f1b}, {"interleaved 1F1B", interleaved}}) {
    if (!arm) continue;
    const Json& bubble = (*arm)["bubble"];
    cli::add(seed, format("idle share with %d workers and %d microbatches", p, m),
        format("%.3f", bubble["formula"].get<double>()),
        format("%.3f", bubble["equal_stages"].get<double>()),
        format("%.3f", bubble["measured"].get<double>()));
  }
  cli::add("1F1B", "activations against GPipe's, 4 stages, 8 microbatches, first stage", "N/m = 0.50",
      "-",
      format("%.2f",
             largest(memory, "1f1b", "activations") / largest(memory, "gpipe", "activations")));
  cli::add("GPipe", "activations with recomputing against without", "m inputs and one sample's", "-",
      format("%.2f", largest(memory, "gpipe recompute", "activations") /
                         largest(memory, "gpipe", "activations")));
  if (dream && gpipe) {
    cli::add("PipeDream",
        format("time a sample of GPipe over PipeDream's, which has no flush, m = %d", m),
        format("(m+p-1)/m = %.2f", double(m + p - 1) / m), ratio(gpipe, dream, "predicted_ms"),
        ratio(gpipe, dream, "measured_ms"));
  }
  cli::add("PipeDream", "older weight versions that stage 0 of 4 stashes, in weights", "N - 1 = 3", "-",
      stashed(memory, "pipedream"));
  if (two && f1b) {
    cli::add("2BW", format("time a sample of 1F1B over 2BW's, which has no flush, m = %d", m),
        format("(m+p-1)/m = %.2f", double(m + p - 1) / m), ratio(f1b, two, "predicted_ms"),
        ratio(f1b, two, "measured_ms"));
  }
  cli::add("2BW", "older weight versions that stage 0 of 4 stashes, in weights", "1", "-",
      stashed(memory, "2bw"));
  for (const char* flushing : {"gpipe", "1f1b"}) {
    const Json* const small = two ? as_small_as(arms, flushing, *two) : nullptr;
    if (!two) break;
    cli::add("2BW",
        small ? format("time a sample of %s over 2BW's at equal memory, its m = %d", flushing,
                       (*small)["microbatches"].get<int>())
              : format("%s at 2BW's memory", flushing),
        "no flush", small ? ratio(small, two, "predicted_ms") : "-",
        small ? ratio(small, two, "measured_ms") : "needs more at any m here");
  }
  cli::add("2BW", "memory of the largest of 4 stages against 1F1B's", "one version more", "-",
      format("%.2f", largest(memory, "2bw", "total") / largest(memory, "1f1b", "total")));
  cli::add("2BW", "memory of the largest of 4 stages against PipeDream's", "2 versions instead of 4",
      "-", format("%.2f", largest(memory, "2bw", "total") / largest(memory, "pipedream", "total")));
  return claims;
}

}  // namespace

Json bench_seeds(const BenchArguments& arguments) {
  const int workers =
      std::min(arguments.stages > 0 ? int(arguments.stages) : 4, engine::usable_cores());
  const std::vector<int> microbatches =
      arguments.quick ? std::vector<int>{4} : std::vector<int>{2, 4, 8, 16};
  const std::int64_t size = sizes_or(arguments, {32}).front();
  const std::int64_t rounds = arguments.quick ? 1 : arguments.rounds;
  const double seconds = arguments.quick ? arguments.seconds / 10 : arguments.seconds;
  const engine::plan::Link link = engine::plan::fit_link(engine::measure_hand_off().points);
  std::vector<Arm> arms = make_arms(workers, microbatches, size);
  const OtherLoad others;
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < arms.size(); ++i) {
      std::fprintf(stderr, "\rround %lld of %lld, arm %zu of %zu \x1b[K",
                   static_cast<long long>(round + 1), static_cast<long long>(rounds), i + 1,
                   arms.size());
      take_turn(arms[i], link, seconds);
    }
  }
  std::fputs("\r\x1b[K", stderr);
  Json results = {{"suite", "seeds"},     {"rounds", rounds},   {"seconds", seconds},
                  {"size", size},         {"workers", workers}, {"others_cores", others.cores()},
                  {"arms", Json::array()}};
  for (const Arm& arm : arms) results["arms"].push_back(arm_json(arm));
  results["memory"] = memory_by_schedule(size);
  results["claims"] = claims_of(results["arms"], results["memory"], workers, 4);
  results["provenance"] = app::provenance(workers);
  std::printf("%-18s %12s %12s %9s %9s %9s\n", "", "measured ms", "predicted ms", "bubble",
              "formula", "equal");
  for (const Json& arm : results["arms"]) {
    std::printf("%-18s %12.3f %12.3f", arm["arm"].get<std::string>().c_str(),
                arm["measured_ms"].get<double>(), arm["predicted_ms"].get<double>());
    if (arm.contains("bubble"))
      std::printf(" %9.3f %9.3f %9.3f", arm["bubble"]["measured"].get<double>(),
                  arm["bubble"]["formula"].get<double>(),
                  arm["bubble"]["equal_stages"].get<double>());
    std::printf("\n");
  }
  for (const Json& claim : results["claims"]) {
    std::printf("%-17s %-75s %s: %s\n", claim["seed"].get<std::string>().c_str(),
                claim["claim"].get<std::string>().c_str(),
                claim["published"].get<std::string>().c_str(),
                claim["measured"].get<std::string>().c_str());
  }
  return results;
}

}  // namespace millrace::bench
