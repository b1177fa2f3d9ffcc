// `millrace bench`: hands over to the benchmarks' own program, which not everybody builds.
#include <unistd.h>

#include <filesystem>

#include "tools/cli/commands/command.h"

namespace millrace::cli {
namespace {

struct Arguments {
  CLI::App* command = nullptr;
};

void add_options(CLI::App& command, Arguments& arguments) {
  command.prefix_command();
  command.set_help_flag();  // --help is answered there
  arguments.command = &command;
}

int bench(const Arguments& arguments) {
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "millrace-bench";
  std::vector<std::string> words = arguments.command->remaining();
  words.insert(words.begin(), program);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  throw std::runtime_error("no benchmarks at " + program.string() + ": build them by tools/setup all");
}

}  // namespace

const Command kBench = {"bench", "Measure, and publish what was measured",
                        add<Arguments, add_options, bench>};

}  // namespace millrace::cli
