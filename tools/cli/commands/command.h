// A command of the program. Its code's last line is its entry; the command line, help, completion
// and the man page follow from that.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/cli/entry.h"
#include "tools/cli/options.h"

namespace millrace::cli {

/// An entry of the table. Constructing one, as a global, adds it.
struct Command {
  /// `place`: in help, which lists commands by it. `add` declares the options and returns what runs
  /// the command once they are parsed: that returns the exit code, or throws.
  Command(int place, std::string name, std::string summary,
          std::function<int()> (*add)(Options& options));

  int place;
  std::string name;
  std::string summary;  ///< one line, for people who choose
  std::function<int()> (*add)(Options& options);
};

/// In the order of their places.
std::vector<Command>& command_table();

/// Command::add for a command whose options are the members of an `Arguments`.
template <typename Arguments, void (*declare)(Options&, Arguments&), int (*run)(const Arguments&)>
std::function<int()> add(Options& options) {
  auto arguments = std::make_shared<Arguments>();
  declare(options, *arguments);
  return [arguments] { return run(*arguments); };
}

}  // namespace millrace::cli
