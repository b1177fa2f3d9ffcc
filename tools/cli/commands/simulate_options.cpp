// The command line of `millrace simulate`.
#include <CLI/CLI.hpp>  // command line

#include "tools/cli/commands/schedule_choice.h"
#include "tools/cli/commands/simulate.h"

namespace millrace::cli {
namespace {

void add_costs(CLI::App& command, SimulateArguments& simulate) {
  CLI::Option* profile = command.add_option("--profile", simulate.profile,
                                            "What modules cost: JSON, or PipeDream's graph.txt");
  command
      .add_option("--cut", simulate.cut, "Modules where stages 1.. begin, as 3,6; unset: balanced")
      ->delimiter(',')
      ->needs(profile);
  command
      .add_option("--tensor", simulate.tensor,
                  "Ranks that share each module of the profile, as far as it can be shared")
      ->check(CLI::Range(1, 64))
      ->needs(profile);
  const CLI::Range ms(0.0, 1e9), bytes(0.0, 1e15);
  const auto option = [&](const char* name, auto& value, const char* text,
                          const CLI::Range& range) {
    return command.add_option(name, value, text)->check(range)->excludes(profile);
  };
  option("--forward", simulate.forward, "ms of a sample: one value, or one a stage", ms)
      ->delimiter(',')
      ->capture_default_str();
  option("--backward", simulate.backward, "ms; half each for input and weights", ms)
      ->delimiter(',')
      ->capture_default_str();
  option("--update", simulate.update, "ms", ms)->delimiter(',')->capture_default_str();
  option("--message-bytes", simulate.message_bytes, "Of an activation, and of its gradient", bytes);
  option("--weight-bytes", simulate.weight_bytes, "Of a stage's weights", bytes);
  option("--stash-bytes", simulate.stash_bytes, "A stage keeps of a sample to go back", bytes);
}

void add_machine(CLI::App& command, SimulateArguments& simulate) {
  CLI::Option* links = command.add_option(
      "--links", simulate.links, "GB/s[:ms] for each of --devices' levels, by commas, as for plan");
  command.add_option("--devices", simulate.devices,
                     "8, or 2x8: servers x devices; unset: as needed");
  command.add_option("--link-latency", simulate.link_latency_ms, "ms of a message")
      ->check(CLI::Range(0.0, 1e9))
      ->excludes(links);
  command.add_option("--link-gbps", simulate.link_gbps, "Gbit/s of a link; 0: bytes cost nothing")
      ->check(CLI::Range(0.0, 1e9))
      ->excludes(links);
  command
      .add_option("--delay", simulate.delay_ms,
                  "ms that a message is under way besides, however many are, as over a long cable")
      ->check(CLI::Range(0.0, 1e9));
  command.add_option("--overlap", simulate.overlap, "What runs beside computing")
      ->check(CLI::IsMember({"none", "transfers", "all"}))
      ->capture_default_str();
  command.add_option("--overhead", simulate.overhead_ms, "ms to launch an action")
      ->check(CLI::Range(0.0, 1e9));
  command.add_option("--contention", simulate.contention, "Computing takes so many times longer")
      ->check(CLI::Range(1e-3, 1e3))
      ->capture_default_str();
  command
      .add_option("--cores", simulate.cores, "That workers are dealt to in turn; 0: one for each")
      ->check(CLI::Range(0, 65536));
  command.add_option("--fps", simulate.fps, "Frames a second of a live source; 0: not live")
      ->check(CLI::Range(0.0, 1e9));
}

}  // namespace

void add_simulate_options(CLI::App& command, SimulateArguments& simulate) {
  add_schedule_choice(command, simulate, 65536);
  command.add_option("--samples", simulate.samples, "How many; unset: enough for a steady period")
      ->check(CLI::Range(1, 10'000'000));
  add_costs(command, simulate);
  add_machine(command, simulate);
  command.add_option("--trace", simulate.trace, "Where to write a trace for Chrome or Perfetto");
  command.add_option("--svg", simulate.svg, "Where to draw the time line");
  command.add_option("--until", simulate.until_ms, "ms that the drawing shows")
      ->check(CLI::Range(0.0, 1e12));
  command.add_option("--json", simulate.json, "Where to write the results");
}

}  // namespace millrace::cli
