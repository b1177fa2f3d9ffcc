#pragma once

#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>

namespace millrace::cli {

/// Exit codes that users' scripts rely on.
enum ExitCode { kDone = 0, kRunFailed = 1, kBadUsage = 2, kNoSource = 3 };

/// A command of the program. Define one as a global, at the end of the command's file: command
/// line, help, completion and man page follow from it.
struct Command {
  /// `place`: position in the help. `add` declares the options and returns the function that runs
  /// the command after parsing; that returns the exit code or throws.
  Command(int place, std::string name, std::string summary,
          std::function<int()> (*add)(CLI::App& options));

  std::string name;
  std::string summary;  ///< one line for the help
  std::function<int()> (*add)(CLI::App& options);
};

/// Command::add for a command whose options are the members of an `Arguments`.
template <typename Arguments, void (*declare)(CLI::App&, Arguments&), int (*run)(const Arguments&)>
std::function<int()> add(CLI::App& options) {
  auto arguments = std::make_shared<Arguments>();
  declare(options, *arguments);
  return [arguments] { return run(*arguments); };
}

/// An option whose value lies from `least` to `most`; of a list, by commas, each value.
template <class Value, class Limit>
CLI::Option* add_number(CLI::App& options, const std::string& name, Value& value,
                        const std::string& text, Limit least, Limit most) {
  CLI::Option* const option = options.add_option(name, value, text);
  const CLI::Range range(least, most);
  option->check(
      [range](const std::string& given) {
        double number = 0;
        const bool nan = std::is_floating_point_v<Limit> &&  // CLI::Range lets it pass
                         CLI::detail::lexical_cast(given, number) && std::isnan(number);
        return nan ? "Value " + given + " is not a number" : range(given);
      },
      range.get_description());
  if constexpr (requires { value.push_back(least); }) option->delimiter(',');
  return option;
}
constexpr std::int64_t kMostFrames = 1'000'000'000'000;
void add_set(CLI::App& options, std::vector<std::string>& settings);
void add_config(CLI::App& options, std::string& config, std::vector<std::string>& settings);
/// Prints an exception as one line. Returns its exit code.
int report_failure(const std::exception& error);
/// Replaces this program by Python: main() of millrace._`module` with `arguments`, its result as
/// exit code. `asker`: the command or option in error messages. Throws std::runtime_error if Python
/// can't be started.
[[noreturn]] void run_python(const std::string& asker, const std::string& module,
                             const std::vector<std::string>& arguments);

}  // namespace millrace::cli
