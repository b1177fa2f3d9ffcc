// The `millrace` program: reads the command line, calls the command, maps failures to exit codes.
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "tools/app/config/config.h"
#include "tools/cli/commands/command.h"
#include "tools/cli/commands/signals.h"
#include "tools/cli/shell/option_text.h"

namespace millrace::cli {

std::vector<Command>& command_table() {
  static std::vector<Command> table;
  return table;
}

Command::Command(int place, std::string name, std::string summary,
                 std::function<int()> (*add)(Options& options))
    : place(place), name(std::move(name)), summary(std::move(summary)), add(add) {
  auto& table = command_table();
  const auto next = std::find_if(table.begin(), table.end(),
                                 [&](const Command& other) { return other.place > place; });
  table.insert(next, *this);
}

namespace {

int main_program(int argc, char** argv) {
  Program program{
      .meaning = "A neural network that learns from a live video stream, frame by frame.",
      .version = MILLRACE_VERSION};
  for (const Command& command : command_table()) {
    CommandLine& line = program.commands.emplace_back(CommandLine{command.name, command.summary});
    line.run = command.add(line.options);
  }
  Options& own = program.options;
  own.add("--version", Option::Value(), "Display program version information and exit");
  own.add("--man", Option::Answer([&](const std::string&) {
            return man_page(program, app::key_entries(), stages::layer_types());
          }),
          "Print the man page, as roff: millrace --man | man -l -");
  own.add("--completion", Option::Answer([&](const std::string& shell) {
            return completion(program, app::key_entries(), shell);
          }),
          "Print completion for a shell: source <(millrace --completion bash)",
          {.choices = {"bash", "zsh", "fish"}});
  return parse_and_run(program, argc, argv);
}

/// Called before LibTorch's constructors, which take most of a second: a signal may come meanwhile.
void hear_signals(int argc, char** argv, char**) {
  if (argc > 1 && std::strcmp(argv[1], "run") == 0) catch_signals();
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const kFirst)(int, char**,
                                                                   char**) = hear_signals;

}  // namespace
}  // namespace millrace::cli

int main(int argc, char** argv) {
  using namespace millrace::cli;
  // Every step frees activations that the next one allocates again. By default the allocator
  // returns them to the system in between and gets them back page by page: some 4 % of a step.
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  return run_program([&] { return main_program(argc, argv); });
}
