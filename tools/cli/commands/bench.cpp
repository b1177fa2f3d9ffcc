// Runs the separate benchmark program, which not all builds include.
#include <filesystem>

#include "tools/cli/commands/command.h"
#include "tools/cli/commands/python.h"

namespace millrace::cli {
namespace {

void add_options(CLI::App& options, const CLI::App*& self) {
  options.prefix_command();
  options.set_help_flag();
  self = &options;
}

int bench(const CLI::App* const& self) {
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "millrace-bench";
  std::vector<std::string> words = self->remaining();
  words.insert(words.begin(), program);
  become(std::move(words));
  throw std::runtime_error("no benchmarks at " + program.string() +
                           ": build them by tools/setup all");
}

}  // namespace

const Command kBench = {100, "bench", "Measure, and publish what was measured",
                        add<const CLI::App*, add_options, bench>};

}  // namespace millrace::cli
