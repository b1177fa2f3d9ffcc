// What Python does: exports, TensorBoard's files, and the benchmarks, which not all builds include.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "tools/cli/commands/command.h"

namespace millrace::cli {
namespace {

namespace fs = std::filesystem;

/// This program's folder.
fs::path home() {
  return fs::read_symlink("/proc/self/exe").parent_path();
}

/// Python with this build's package: the one that started a wheel's program, or beside the program
/// in a build tree, otherwise on PATH.
std::string python() {
  if (const char* const own = std::getenv("MILLRACE_PYTHON")) return own;
  const fs::path here = home();
  if (fs::exists(here / "python" / "millrace")) {
    const char* const before = std::getenv("PYTHONPATH");
    const std::string path = (here / "python").string() + (before ? std::string(":") + before : "");
    setenv("PYTHONPATH", path.c_str(), 1);
  }
  const fs::path own = here / "../../.venv/bin/python";
  return fs::exists(own) ? own.string() : "python3";
}

[[noreturn]] void become_python(const std::string& asker, std::vector<std::string> words) {
  words.insert(words.begin(), python());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw std::runtime_error(asker + ": needs Python: " + words[0] + " can't be run");
}

/// Reports a missing package in one line.
constexpr char kMain[] = R"(import importlib
import sys
asker, module, *arguments = sys.argv[1:]
try:
    main = importlib.import_module("millrace._" + module).main
except ImportError as error:
    sys.exit(f"millrace: error: {asker}: " + (str(error) if error.name is None else f"needs the Python package "
             f"{error.name}: {sys.executable} -m pip install {error.name}"))
sys.exit(main(*arguments)))";

struct TensorboardArguments {
  std::string log;  ///< file written by output.log
  std::string folder;
};

int tensorboard(const TensorboardArguments& arguments) {
  run_python("tensorboard", "tensorboard", {arguments.log, arguments.folder});
}

void add_options(CLI::App& options, TensorboardArguments& arguments) {
  options.add_option("log", arguments.log, "Log from output.log")->required();
  options.add_option("folder", arguments.folder, "Folder to write to")->required();
}

int bench(const CLI::App* const& self) {
  const fs::path program = home() / "millrace-bench",
                 script = home() / "../../tools/bench/bench.py";
  for (const fs::path& part : {program, script}) {
    if (!fs::exists(part))
      throw std::runtime_error("no benchmarks at " + part.lexically_normal().string() +
                               ": build them by tools/setup all");
  }
  std::vector<std::string> words = {"-B", script, program};
  for (const std::string& word : self->remaining()) words.push_back(word);
  become_python("bench", std::move(words));
}

void add_bench(CLI::App& options, const CLI::App*& self) {
  options.prefix_command();
  options.set_help_flag();
  self = &options;
}

}  // namespace

void run_python(const std::string& asker, const std::string& module,
                const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"-c", kMain, asker, module};
  words.insert(words.end(), arguments.begin(), arguments.end());
  become_python(asker, std::move(words));
}

const Command kTensorboard = {90, "tensorboard",
                              "Convert a log from output.log into an event file for TensorBoard",
                              add<TensorboardArguments, add_options, tensorboard>};
const Command kBench = {100, "bench", "Measure, and publish what was measured",
                        add<const CLI::App*, add_bench, bench>};

}  // namespace millrace::cli
