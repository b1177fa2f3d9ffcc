// A command of the program, and the table of them. An entry stands beside the command's code; the
// command line, help, completion and the man page are made of the table.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace millrace::tools {

/// The exit codes users' scripts rely on.
enum ExitCode { kDone = 0, kRunFailed = 1, kBadUsage = 2, kNoSource = 3 };

struct Command {
  const char* name;
  const char* summary;  ///< one line, for people who choose
  /// Adds its options to `command`. What it returns does what they ask, once they are parsed:
  /// returns the exit code, or throws.
  std::function<int()> (*add)(CLI::App& command);
};

/// Command::add for a command whose options are the members of an `Arguments`.
template <typename Arguments, void (*add_options)(CLI::App&, Arguments&),
          int (*run)(const Arguments&)>
std::function<int()> add(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  add_options(command, *arguments);
  return [arguments] { return run(*arguments); };
}

extern const Command kRun, kCheck, kInspect, kSchedule, kPlan, kProfile, kSimulate, kCompare,
    kTensorboard, kBench;

/// In the order in which help lists them.
const std::vector<const Command*>& command_table();

/// --set, once for each key: what follows it is not taken for another.
void add_set(CLI::App& command, std::vector<std::string>& settings);

/// What an argument may name, for the end of a command's help: a line each.
std::string name_list(const std::string& title,
                      const std::vector<std::pair<std::string, std::string>>& names);

}  // namespace millrace::tools
