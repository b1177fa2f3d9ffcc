// The `millrace` program: reads the command line, calls the command, maps failures to exit codes.
#include <malloc.h>  // mallopt

#include <cstring>
#include <limits>     // never trim

#include "io/text/nearest_name.h"
#include "tools/cli/commands/command.h"
#include "tools/cli/commands/signals.h"
#include "tools/app/config/config.h"
#include "tools/cli/shell/option_text.h"

namespace millrace::cli {
namespace {

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

int main_program(int argc, char** argv) {
  CLI::App app{"A neural network that learns from a live video stream, frame by frame."};
  app.set_version_flag("--version", MILLRACE_VERSION);
  app.require_subcommand(1);
  int code = kDone;
  for (const Command* command : command_table()) {
    CLI::App* const added = app.add_subcommand(command->name, command->summary);
    added->callback([&code, run = command->add(*added)] { code = run(); });
  }
  add_option_text(app, app::describe_keys, app::describe_layers);  // after all else: it tells of all else

  const std::string unknown = unknown_command(app, argc, argv);
  if (!unknown.empty()) return fail(kBadUsage, unknown);
  return parse_and_run(app, argc, argv, [&] { return code; });
}

}  // namespace
}  // namespace millrace::cli

namespace {

/// LibTorch's constructors take most of a second, and a signal may come meanwhile: this is called
/// before them.
void hear_signals(int argc, char** argv, char**) {
  if (argc > 1 && std::strcmp(argv[1], "run") == 0) millrace::cli::catch_signals();
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const kFirst)(int, char**,
                                                                   char**) = hear_signals;

}  // namespace

int main(int argc, char** argv) {
  using namespace millrace::cli;
  // Every step frees activations that the next one takes again. Left to itself the allocator gives
  // them back to the system in between and gets them page by page: some 4 % of a step.
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  return run_program([&] { return main_program(argc, argv); });
}
