// `millrace bench`: runs the benchmarks' own program, which not everybody builds.
#include <unistd.h>

#include <filesystem>

#include "tools/cli/commands/command.h"

namespace millrace::cli {
namespace {

void add_options(Options& options, std::vector<std::string>& words) {
  options.take_all(words);
}

int bench(const std::vector<std::string>& arguments) {
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "millrace-bench";
  std::vector<std::string> words = arguments;
  words.insert(words.begin(), program);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  throw std::runtime_error("no benchmarks at " + program.string() +
                           ": build them by tools/setup all");
}

}  // namespace

const Command kBench = {100, "bench", "Measure, and publish what was measured",
                        add<std::vector<std::string>, add_options, bench>};

}  // namespace millrace::cli
