// What a command takes: declared beside the command's code, parsed by CLI11, printed as the man
// page and as completion for shells.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace millrace::cli {

struct Option;

/// What an option's values must be.
struct Rules {
  bool required = false;
  bool commas = false;        ///< several values in one word, as 3,6
  bool show_default = false;  ///< help shows the default
  std::optional<std::pair<double, double>> range;
  std::vector<std::string> choices;  ///< empty: any
  /// Accepts words beside the choices; null: there are none.
  bool (*or_if)(const std::string&) = nullptr;
  std::vector<const Option*> needs, excludes;  ///< options declared before
};

/// An option, a flag (a bool) or a positional argument.
struct Option : Rules {
  /// Answers an option by a text, which the program prints before it ends.
  using Answer = std::function<std::string(const std::string& word)>;
  /// Where the parsed value goes, which must outlive the parsing. Empty: CLI11 answers by itself.
  using Value =
      std::variant<std::monostate, bool*, int*, std::int64_t*, double*, std::string*,
                   std::optional<std::string>*, std::vector<int>*, std::vector<std::int64_t>*,
                   std::vector<double>*, std::vector<std::string>*, Answer>;

  bool positional() const { return names[0][0] != '-'; }
  bool takes_value() const { return !value_name().empty(); }
  bool takes_path() const { return value_name() == "TEXT" && choices.empty(); }
  /// "TEXT", "INT", "FLOAT"; "" for a flag.
  std::string value_name() const;

  std::vector<std::string> names;  ///< "-f", "--format"; a positional has one, without a dash
  Value value;
  std::string meaning;
};

/// The options of a command, with --help.
class Options {
 public:
  Options();
  /// `names`: "--stages", "-f,--format", or a positional's without dashes. The option stays where
  /// it is.
  Option& add(const std::string& names, Option::Value value, std::string meaning, Rules rules = {});
  template <class T>
  Option& add(const std::string& names, T& value, std::string meaning, Rules rules = {}) {
    return add(names, Option::Value(&value), std::move(meaning), std::move(rules));
  }
  /// --set, one key each time.
  void add_set(std::vector<std::string>& settings);
  /// What an argument may name, listed below the help: a line for each name.
  void list_names(const std::string& title,
                  const std::vector<std::pair<std::string, std::string>>& names);
  /// Takes every word as it is, --help too.
  void take_all(std::vector<std::string>& words);

  std::deque<Option> all;
  std::string footer;                         ///< what list_names() made; or empty
  std::vector<std::string>* words = nullptr;  ///< of take_all()
};

/// A command as users see it.
struct CommandLine {
  std::string name, meaning;
  Options options;
  std::function<int()> run;  ///< once the options are parsed; returns the exit code
};

struct Program {
  std::string meaning, version;
  Options options;                   ///< before the command
  std::deque<CommandLine> commands;  ///< they stay where they are
};

/// Parses the command line and runs the command. Prints help; a usage error becomes one line.
/// Returns the exit code.
int parse_and_run(Program& program, int argc, char** argv);

}  // namespace millrace::cli
