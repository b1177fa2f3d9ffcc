// The `millrace` program: reads the command line, calls the command, maps failures to exit codes.
#include <malloc.h>  // mallopt

#include <CLI/CLI.hpp>  // command line

#include <exception>  // failures
#include <iostream>   // errors
#include <limits>     // never trim

#include "engine/schedule/schedule.h"
#include "io/source/source.h"
#include "io/source/uri.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_arm.h"
#include "tools/config/commands.h"
#include "tools/config/config.h"
#include "tools/shell/option_text.h"
#include "tools/commands/schedule_choice.h"
#include "tools/commands/simulate.h"

namespace millrace::tools {
namespace {

int fail(ExitCode code, const std::string& what) {
  // Whatever a message quotes, a URI's password is never shown, nor is a terminal given orders.
  std::string line = io::redacted(what.substr(0, what.find('\n')));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  }
  std::cerr << "millrace: error: " << line << "\n";
  return code;
}

/// The first argument, if it is no command: CLI11 would take what follows for options of the
/// program.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  std::vector<std::string_view> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == argv[1]) return "";
    names.push_back(command->get_name());
  }
  return "unknown command \"" + std::string(argv[1]) + "\"; the nearest is \"" +
         io::nearest_name(argv[1], names) + "\"";
}

void add_profile(CLI::App& app, ProfileArguments& profile, int& code) {
  CLI::App* command = app.add_subcommand(
      "profile", "Measure a network's modules on this machine, all of its cores busy");
  command->add_option("config", profile.config, "Config file; none: every key at its default");
  command->add_option("--set", profile.settings, "table.key=value, on top of the config")
      ->allow_extra_args(false);
  command->add_option("--json", profile.json, "Where to write it, for plan and simulate");
  command->add_flag("--operators", profile.operators,
                    "Instead, each operator of the stages' step programs: kernel, time, GFLOP/s");
  command->callback([&] { code = profile_command(profile); });
}

void add_plan(CLI::App& app, PlanArguments& plan, int& code) {
  CLI::App* command = app.add_subcommand(
      "plan", "The best cut, schedule and use of devices for a profile; writes what run reads");
  command
      ->add_option("input", plan.input,
                   "Profile (JSON or PipeDream's graph.txt), or config (.toml) to measure")
      ->required();
  command->add_option("--set", plan.settings, "table.key=value, on top of the config")
      ->allow_extra_args(false);
  command->add_option("--devices", plan.devices, "8, or 2x8: servers x devices")
      ->capture_default_str();
  command->add_option("--links", plan.links, "GB/s[:ms] for each of --devices' levels, by commas");
  command->add_option("--overlap", plan.overlap, "What runs beside computing")
      ->check(CLI::IsMember({"none", "transfers", "all"}))
      ->capture_default_str();
  command->add_option("--memory", plan.memory_gb, "GB of a device; 0: no limit")
      ->check(CLI::Range(0.0, 1e6));
  std::vector<std::string> schedules = engine::schedule_names();
  schedules.push_back("any");
  command->add_option("--schedules", plan.schedules, "To choose from, by commas; or any")
      ->delimiter(',')
      ->check(CLI::IsMember(schedules));
  command->add_option("--microbatches", plan.microbatches, "Samples an update, to choose from")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536));
  command->add_option("--virtual-stages", plan.virtual_stages, "interleaved: to choose from")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command->add_flag("--recompute", plan.recompute, "Activations may be computed again");
  command->add_flag("--replicas", plan.replicas, "Stages may be replicated");
  command->add_flag("--threads", plan.threads, "Stages may take several cores");
  command->add_option("--tensor", plan.most_tensor, "Devices that may share a module")
      ->check(CLI::Range(1, 4096));
  command->add_option("--copies", plan.most_copies, "Pipelines that may run side by side")
      ->check(CLI::Range(1, 4096));
  command->add_option("--stages", plan.stages, "Exactly so many; 0: as are best")
      ->check(CLI::Range(0, 4096));
  command->add_option("--frames", plan.frames, "graph.txt: frames its figures are for")
      ->check(CLI::Range(1, 1'000'000));
  command->add_option("--fps", plan.fps, "F for the rule T/N < 1/F")->check(CLI::Range(0.0, 1e6));
  command->add_option("--kind", plan.kind, "What the table calls devices: cpu | cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--output", plan.output, "Where to write the [pipeline] table");
  command->add_option("--json", plan.json, "Where to write every plan that was weighed");
  command->callback([&] { code = plan_command(plan); });
}

int main_program(int argc, char** argv) {
  CLI::App app{"A neural network that learns from a live video stream, frame by frame."};
  app.set_version_flag("--version", MILLRACE_VERSION);
  app.require_subcommand(1);
  int code = kDone;

  RunArguments run;
  CLI::App* run_app = app.add_subcommand(
      "run", "Learn from the source until it ends, --frames are trained or SIGINT comes");
  run_app->add_option("config", run.config, "Config file; none: every key at its default");
  run_app
      ->add_option("--set", run.settings, "table.key=value, on top of the config; may be repeated")
      ->allow_extra_args(false);
  run_app->add_option("--frames", run.frames, "Frames to train; 0: until the source ends")
      ->check(CLI::Range(std::int64_t(0), std::int64_t(1'000'000'000'000)));
  run_app->add_option("--report", run.report, "Where to write the report, JSON");
  run_app->add_option("--trace", run.trace,
                      "Where to write what each worker did and when, for Chrome or Perfetto: the "
                      "last 1000000 actions and waits");
  run_app
      ->add_option("--serve", run.serve_at,
                   "A page to watch on, at ADDR:PORT (unset: 127.0.0.1:8080); another address than "
                   "loopback needs --token")
      ->expected(0, 1);
  run_app->add_option("--token", run.token, "Asked of whoever opens the page");
  run_app->add_flag("--quiet", run.quiet, "No progress and no summary");
  run_app->callback([&, run_app] {
    run.serve = run_app->count("--serve") > 0;
    code = run_command(run);
  });

  CheckArguments check;
  CLI::App* check_app = app.add_subcommand("check", "Validate a config and say what would run");
  check_app->add_option("config", check.config, "Config file; none: every key at its default");
  check_app
      ->add_option("--set", check.settings,
                   "table.key=value, on top of the config; may be repeated")
      ->allow_extra_args(false);
  check_app->add_flag("--keys", check.keys,
                      "Print every config key with its default, meaning and range");
  check_app->callback([&] { code = check_command(check); });

  std::string uri;
  CLI::App* inspect_app =
      app.add_subcommand("inspect", "Devices and versions; with a URI: what the source is");
  inspect_app->add_option("uri", uri, "A source");
  inspect_app->callback([&] { code = inspect_command(uri); });

  ScheduleArguments schedule;
  CLI::App* schedule_app =
      app.add_subcommand("schedule", "Print a schedule as the staircase, or as PyTorch's CSV");
  add_schedule_choice(*schedule_app, schedule, 4096);
  schedule_app->add_option("--samples", schedule.samples, "How many")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  schedule_app->add_option("--format", schedule.format, "grid | csv")
      ->check(CLI::IsMember({"grid", "csv"}));
  schedule_app->callback([&] { code = schedule_command(schedule); });

  PlanArguments plan;
  add_plan(app, plan, code);

  ProfileArguments profile;
  add_profile(app, profile, code);

  SimulateArguments simulate;
  add_simulate(app, simulate, code);

  CompareArguments compare;
  CLI::App* compare_app = app.add_subcommand(
      "compare", "Reports of several runs side by side: what they were asked, what came of it");
  compare_app->add_option("reports", compare.reports, "Reports, JSON")->required();
  compare_app->add_option("--plot", compare.plot, "Where to draw their losses, .png");
  compare_app
      ->add_option("--logs", compare.logs,
                   "By commas, one for each report: what output.log wrote; unset: as reports say")
      ->delimiter(',');
  compare_app->callback([&] { code = compare_command(compare); });

  TensorboardArguments tensorboard;
  CLI::App* tensorboard_app = app.add_subcommand(
      "tensorboard", "Make an event file for TensorBoard of what output.log wrote");
  tensorboard_app->add_option("log", tensorboard.log, "The log")->required();
  tensorboard_app->add_option("folder", tensorboard.folder, "Where to write it")->required();
  tensorboard_app->callback([&] { code = tensorboard_command(tensorboard); });

  BenchArguments bench;
  CLI::App* bench_app = app.add_subcommand(
      "bench",
      "Measure: framerate (four networks by size and stages), ingest (from a decoded frame to a "
      "sample, and from thread to thread), learning (rules and corrections on "
      "streams), memory (each schedule at 4 stages), "
      "pipeline (the engine's own cost), prediction (the simulator's word against the clock), "
      "tables (published figures, planned again)");
  bench_app->add_option("suite", bench.suite, "Which")
      ->required()
      ->check(CLI::IsMember(bench_suite_names()));
  bench_app
      ->add_option("--networks", bench.networks,
                   "framerate, prediction: which of basic, layers, features, kernel")
      ->delimiter(',')
      ->check(CLI::IsMember(bench_network_names()));
  bench_app->add_option("--sizes", bench.sizes, "Pixels a side, as 32,64; unset: the suite's own")
      ->delimiter(',')
      ->check(CLI::Range(8, 4096));
  bench_app
      ->add_option("--stages", bench.stages,
                   "1 to this many stages (prediction: workers); 0: the suite's own")
      ->check(CLI::Range(0, 19))
      ->capture_default_str();
  bench_app->add_option("--rounds", bench.rounds, "How often the arms take turns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  bench_app->add_option("--seconds", bench.seconds, "Length of an arm's turn")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  bench_app->add_option("--captures", bench.captures, "framerate: graph, eager; unset: auto")
      ->delimiter(',')
      ->check(CLI::IsMember({"graph", "eager"}));
  bench_app->add_option("--pytorch", bench.pytorch,
                        "framerate: a Python with torch, to train the same networks beside");
  bench_app->add_option("--memory-format", bench.memory_format, "contiguous | channels_last")
      ->check(CLI::IsMember({"contiguous", "channels_last"}))
      ->capture_default_str();
  bench_app->add_option("--frames", bench.frames, "learning: frames of each stream; 0: 600")
      ->check(CLI::Range(0, 100000));
  bench_app->add_option("--streams", bench.streams, "learning: which of vtest, scenes, labels")
      ->delimiter(',')
      ->check(CLI::IsMember({"vtest", "scenes", "labels"}));
  bench_app->add_option("--arms", bench.arms, "learning: only those with this in their names");
  bench_app->add_option("--json", bench.json, "Where to write the results");
  bench_app->add_option("--plot", bench.plot, "Where to write the plot, PNG");
  bench_app->add_option(
      "--page", bench.page,
      "ingest, learning, prediction, tables: where to write a page of them, Markdown");
  bench_app->add_option("--profiles", bench.profiles,
                        "tables: the folder profiler of a copy of PipeDream's repository");
  bench_app->add_option("--from", bench.from,
                        "Results of an earlier run to make plot and page of, instead of measuring; "
                        "learning with --streams: to put those streams' results into");
  bench_app->add_option("--compare", bench.compare, "Results of another run to show ratios to");
  bench_app->callback([&] { code = bench_command(bench); });

  add_option_text(app, describe_keys);  // after all else: it tells of all else

  const std::string unknown = unknown_command(app, argc, argv);
  if (!unknown.empty()) return fail(kBadUsage, unknown);
  try {
    app.parse(argc, argv);
    return code;
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return fail(kBadUsage, std::string(error.what()) + " (see millrace --help)");
  }
}

}  // namespace
}  // namespace millrace::tools

int main(int argc, char** argv) {
  using namespace millrace::tools;
  // Every step frees activations that the next one takes again. Left to itself the allocator gives
  // them back to the system in between and gets them page by page: some 4 % of a step.
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  try {
    return main_program(argc, argv);
  } catch (const ConfigError& error) {
    return fail(kBadUsage, error.what());
  } catch (const millrace::io::SourceError& error) {
    return fail(kNoSource, error.what());
  } catch (const std::exception& error) {
    return fail(kRunFailed, error.what());
  }
}
