// A command of the program, and the table of them. An entry stands beside the command's code; the
// command line, help, completion and the man page are made of the table.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/cli/entry.h"

namespace millrace::cli {

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

}  // namespace millrace::cli
