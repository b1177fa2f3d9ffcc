// `millrace bench`: the benchmarks' own program, which `millrace` runs, so that whoever only learns need not build it.
#include <CLI/CLI.hpp>

#include "tools/bench/bench.h"
#include "tools/bench/bench_arm.h"
#include "tools/cli/entry.h"

namespace millrace::bench {
namespace {

void add_options(CLI::App& command, BenchArguments& arguments) {
  std::vector<std::string> suites;
  for (const auto& [name, summary] : bench_suites()) suites.push_back(name);
  std::string names = "Suites:";
  for (const auto& [name, summary] : bench_suites()) names += "\n  " + name + ": " + summary;
  command.footer(names);
  command.add_option("suite", arguments.suite, "Which; see below")
      ->required()
      ->check(CLI::IsMember(suites));
  std::vector<std::string> networks = bench_network_names();
  networks.push_back("resnet18");
  command
      .add_option("--networks", arguments.networks,
                  "framerate, partime, prediction: which of basic, layers, features, kernel; "
                  "framerate: resnet18, too")
      ->delimiter(',')
      ->check(CLI::IsMember(networks));
  command.add_option("--sizes", arguments.sizes, "Pixels a side, as 32,64; unset: the suite's own")
      ->delimiter(',')
      ->check(CLI::Range(8, 4096));
  command
      .add_option("--stages", arguments.stages,
                  "1 to this many stages (prediction: workers); 0: the suite's own")
      ->check(CLI::Range(0, 19))
      ->capture_default_str();
  command.add_option("--rounds", arguments.rounds, "How often the arms take turns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--seconds", arguments.seconds, "Length of an arm's turn")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  command.add_flag("--quick", arguments.quick, "partime, ranks, seeds: a small part of it, in seconds");
  command
      .add_option("--captures", arguments.captures,
                  "framerate, partime: graph, eager; unset: auto, both")
      ->delimiter(',')
      ->check(CLI::IsMember({"graph", "eager"}));
  command.add_option("--pytorch", arguments.pytorch,
                     "framerate, ranks: a Python with torch, to train the same networks beside");
  command.add_option("--memory-format", arguments.memory_format, "contiguous | channels_last")
      ->check(CLI::IsMember({"contiguous", "channels_last"}))
      ->capture_default_str();
  command
      .add_option("--frames", arguments.frames,
                  "learning: frames of each stream (0: 600); replay: of the stream (0: 800)")
      ->check(CLI::Range(0, 100000));
  command
      .add_option("--streams", arguments.streams, "learning: which of vtest, film, scenes, labels")
      ->delimiter(',')
      ->check(CLI::IsMember({"vtest", "film", "scenes", "labels"}));
  command.add_option("--arms", arguments.arms, "learning, ranks: only those with this in their names");
  command.add_option("--json", arguments.json, "Where to write the results");
  command.add_option("--plot", arguments.plot, "Where to write the plot, PNG");
  command.add_option("--page", arguments.page,
                     "framerate, ingest, learning, partime, prediction, ranks, seeds, tables: where to "
                     "write a page of them, Markdown");
  command.add_option("--profiles", arguments.profiles,
                     "tables: the folder profiler of a copy of PipeDream's repository");
  command.add_option("--from", arguments.from,
                     "Results of an earlier run to make plot and page of, instead of measuring; "
                     "learning with --streams: to put those streams' results into");
  command.add_option("--compare", arguments.compare, "Results of another run to show ratios to");
}

int main_program(int argc, char** argv) {
  CLI::App app{"Measure, and publish what was measured", "millrace bench"};
  BenchArguments arguments;
  add_options(app, arguments);
  try {
    app.parse(argc, argv);
    run_bench(arguments);
    return cli::kDone;
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return cli::fail(cli::kBadUsage, std::string(error.what()) + " (see millrace bench --help)");
  }
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  return millrace::cli::run_program([&] { return millrace::bench::main_program(argc, argv); });
}
