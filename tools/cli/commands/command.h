// A command of the program. Its code's last line is its entry; the command line, help, completion
// and the man page follow from that.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace millrace::cli {

/// The exit codes users' scripts rely on.
enum ExitCode { kDone = 0, kRunFailed = 1, kBadUsage = 2, kNoSource = 3 };

/// An entry of the table. Constructing one, as a global, adds it.
struct Command {
  /// `place`: in help, which lists commands by it. `add` declares the options and returns what runs
  /// the command once they are parsed: that returns the exit code, or throws.
  Command(int place, std::string name, std::string summary,
          std::function<int()> (*add)(CLI::App& options));

  int place;
  std::string name;
  std::string summary;  ///< one line, for people who choose
  std::function<int()> (*add)(CLI::App& options);
};

/// In the order of their places.
std::vector<Command>& command_table();

/// Command::add for a command whose options are the members of an `Arguments`.
template <typename Arguments, void (*declare)(CLI::App&, Arguments&), int (*run)(const Arguments&)>
std::function<int()> add(CLI::App& options) {
  auto arguments = std::make_shared<Arguments>();
  declare(options, *arguments);
  return [arguments] { return run(*arguments); };
}

/// Of --frames.
inline const CLI::Range kFrameCount(std::int64_t{0}, std::int64_t{1'000'000'000'000});
/// --set, one key each time.
void add_set(CLI::App& options, std::vector<std::string>& settings);
/// A config file, which may be left out, and --set.
void add_config(CLI::App& options, std::string& config, std::vector<std::string>& settings);

}  // namespace millrace::cli
