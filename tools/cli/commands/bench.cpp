// Runs the benchmarks, whose program not all builds include.
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
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::filesystem::path program = here / "millrace-bench";
  const std::filesystem::path script = here / "../../tools/bench/bench.py";
  for (const std::filesystem::path& part : {program, script}) {
    if (!std::filesystem::exists(part))
      throw std::runtime_error("no benchmarks at " + part.lexically_normal().string() +
                               ": build them by tools/setup all");
  }
  std::vector<std::string> words = {"-B", script, program};
  for (const std::string& word : self->remaining()) words.push_back(word);
  become_python("bench", std::move(words));
}

}  // namespace

const Command kBench = {100, "bench", "Measure, and publish what was measured",
                        add<const CLI::App*, add_options, bench>};

}  // namespace millrace::cli
