#include "engine/format.h"
#include "tools/app/config/profile_read.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "capture/program/kernels/kernels.h"
#include "engine/pipeline/exchange.h"
#include "engine/plan_files/profile_json.h"
#include "engine/trainer/operations.h"
#include "engine/trainer/profiler.h"
#include "engine/trainer/trainer.h"
#include "io/files/whole_file.h"
#include "tools/app/assembly.h"
#include "tools/app/outputs/outputs.h"
#include "tools/app/run.h"
#include "tools/cli/commands/command.h"

namespace millrace::cli {
namespace {

struct ProfileArguments {
  std::string config;
  std::vector<std::string> settings;
  std::string json;
  bool operators = false;  ///< print the step programs' operators instead
};

/// Prints the time of one rank's part of each shareable module beside that of the whole module.
void print_parts(const engine::plan::Profile& profile) {
  std::map<int, std::pair<double, double>> all;  // [number of ranks]
  for (const engine::plan::ModuleProfile& m : profile.modules) {
    for (const auto& [ways, ms] : m.parts) {
      all[ways].first += ms.total();
      all[ways].second += m.ms().total();
    }
  }
  for (const auto& [ways, ms] : all)
    std::printf("    one of %-3d parts      %8.4f ms per sample, %.4f unsplit\n", ways, ms.first,
                ms.second);
}

void print_profile(const engine::plan::Profile& profile) {
  std::printf("%s on %s, %s; median ms (spread), KiB\n", profile.network.c_str(),
              profile.device.c_str(), profile.source.c_str());
  std::printf("%3s %-20s %16s %16s %16s %16s %10s %8s %8s\n", "", "module", "forward",
              "input gradient", "weight gradient", "update", "activation", "weights", "stash");
  const auto time = [](const engine::plan::Measured& value) {
    return engine::format("%8.4f (%.4f)", value.median, value.spread);
  };
  double total = 0;
  for (std::size_t i = 0; i < profile.modules.size(); ++i) {
    const engine::plan::ModuleProfile& m = profile.modules[i];
    total += m.ms().total();
    std::printf("%3zu %-20s %16s %16s %16s %16s %10.1f %8.1f %8.1f\n", i, m.name.c_str(),
                time(m.forward).c_str(), time(m.input_gradient).c_str(),
                time(m.weight_gradient).c_str(), time(m.update).c_str(), m.bytes.activation / 1024,
                m.bytes.weight / 1024, m.bytes.stash / 1024);
  }
  std::printf("    %-20s %8.4f ms a sample\n", "all", total);
  print_parts(profile);
  for (const engine::plan::HandOff& way : profile.hand_offs) {
    const bool sums = way.between == engine::plan::kSums;
    std::printf("%s%s:", sums ? "" : "hand-off ", way.between.c_str());
    for (std::size_t i = 0; i < way.points.size(); ++i)
      std::printf("  %.0f KiB %.4f (%.4f) ms", way.points[i].first / 1024, way.points[i].second,
                  i < way.spread.size() ? way.spread[i] : 0.0);
    std::printf(way.points.empty() ? "  not known: noise or a single core\n" : "\n");
  }
}

/// Prints the speed for each number of cores tried. Plans use the first `helpful`.
void print_speeds(const std::vector<engine::plan::Measured>& speeds, std::size_t helpful) {
  std::printf("speed on 1, 2, ... cores:");
  for (const engine::plan::Measured& speed : speeds)
    std::printf(" %.2f (%.2f)", speed.median, speed.spread);
  if (helpful < speeds.size())
    std::printf("; %zu or more cores do not speed up a stage, so plans use fewer", helpful + 1);
  std::printf("\n");
}

/// Prints a line per operation with its share of the total time and, on CPUs, of the cores' peak.
void print_operations(const std::vector<std::vector<capture::OperationInfo>>& stages,
                      const std::vector<int>& threads, bool on_gpu) {
  const double core = on_gpu ? 0 : kernels::fma_peak();
  double ns = 0, flops = 0;
  for (const auto& operations : stages) {
    for (const capture::OperationInfo& o : operations) {
      ns += double(o.best_ns);
      flops += o.flops;
    }
  }
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    // A single stage has one core.
    const int cores = stages.size() == threads.size() ? std::max(1, threads[stage]) : 1;
    const double peak = core * cores;
    std::printf("stage %zu%s\n  %-56s %-16s %10s %7s %9s %7s\n", stage,
                cores > 1 ? (", " + std::to_string(cores) + " threads").c_str() : "", "operator",
                "kernel", "us", "of all", "GFLOP/s", on_gpu ? "" : "of peak");
    for (const capture::OperationInfo& o : stages[stage]) {
      std::printf("  %-56s %-16s %10.2f %6.1f%%", o.name.c_str(), o.kernel.c_str(),
                  double(o.best_ns) / 1e3, 100 * double(o.best_ns) / ns);
      if (o.flops > 0) std::printf(" %9.1f", o.flops / double(o.best_ns));
      if (o.flops > 0 && !on_gpu)
        std::printf(" %6.0f%%", 100 * o.flops / double(o.best_ns) / (peak / 1e9));
      std::printf("\n");
    }
  }
  if (on_gpu) return void(std::printf("all: %.4f ms, %.1f GFLOP/s\n", ns / 1e6, flops / ns));
  std::printf(
      "all: %.4f ms, %.1f GFLOP/s; a core's peak, multiply-adds on its registers alone: %.1f "
      "GFLOP/s; its sgemm: %.1f GFLOP/s\n",
      ns / 1e6, flops / ns, core / 1e9, engine::sgemm_flops() / 1e9);
}

int profile(const ProfileArguments& arguments) {
  if (arguments.operators) {
    const app::Config config = app::load_argument(arguments.config, arguments.settings);
    const engine::TrainerOptions options = app::assemble(config, app::sample_of(config));
    print_operations(engine::stage_operations(options, 20), options.threads,
                     options.devices.front().cuda);
    return kDone;
  }
  std::optional<app::Config> config;
  std::unique_ptr<engine::Exchange> ranks = app::launched_ranks();
  if (!ranks || ranks->rank() == 0) {  // rank 0 does the rest
    app::require_other_files({{"--json", arguments.json}}, {arguments.config});
    config = app::load_argument(arguments.config, arguments.settings);
  }
  const engine::plan::HandOff sums = ranks ? engine::measure_sums(*ranks) : engine::plan::HandOff();
  ranks.reset();
  if (!config) return kDone;
  std::vector<engine::plan::Measured> speeds;
  engine::plan::Profile profile = app::profile_of(*config, &speeds);
  if (!sums.points.empty()) profile.hand_offs.push_back(sums);
  print_profile(profile);
  if (!speeds.empty()) print_speeds(speeds, profile.thread_speedup.size());
  if (!arguments.json.empty())
    io::write_whole(arguments.json, engine::plan::profile_to_json(profile));
  return kDone;
}

void add_options(CLI::App& options, ProfileArguments& arguments) {
  add_config(options, arguments.config, arguments.settings);
  options.add_option("--json", arguments.json, "Where to write it, for plan and simulate");
  options.add_flag("--operators", arguments.operators,
                   "Instead, each operator of the stages' step programs: kernel, time, GFLOP/s");
}

}  // namespace

const Command kProfile = {60, "profile",
                          "Measure a network's modules on this machine, all of its cores busy",
                          add<ProfileArguments, add_options, profile>};

}  // namespace millrace::cli
