#include "tools/cli/options.h"

#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>

#include "io/text/nearest_name.h"
#include "tools/cli/entry.h"

namespace millrace::cli {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

/// Adds the option to CLI11's. Not its checks.
CLI::Option* declare(CLI::App& app, const Option& option) {
  const std::string names = joined(option.names);
  return std::visit(
      [&](const auto& value) -> CLI::Option* {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<T, bool*>) {
          return app.add_flag(names, *value, option.meaning);
        } else if constexpr (std::is_same_v<T, Option::Answer>) {
          const auto answer = [value](const std::string& word) {
            std::cout << value(word);
            throw CLI::Success();
          };
          if (!option.takes_value())
            return app.add_flag_callback(
                names, [answer] { answer(""); }, option.meaning);
          return app.add_option_function<std::string>(names, answer, option.meaning);
        } else if constexpr (std::is_same_v<T, std::optional<std::string>*>) {
          const auto take = [value](const std::string& word) { *value = word; };
          return app.add_option_function<std::string>(names, take, option.meaning)->expected(0, 1);
        } else {
          return app.add_option(names, *value, option.meaning);
        }
      },
      option.value);
}

void check_words(CLI::Option& declared, const Option& option) {
  if (!option.or_if) {
    declared.check(CLI::IsMember(option.choices));
    return;
  }
  declared.check([&option](const std::string& word) {
    return option.or_if(word) ? std::string() : CLI::IsMember(option.choices)(word);
  });
}

void declare_all(CLI::App& app, const Options& options) {
  std::vector<std::pair<const Option*, CLI::Option*>> declared;
  const auto of = [&](const Option* option) {
    return std::find_if(declared.begin(), declared.end(),
                        [&](const auto& one) { return one.first == option; })
        ->second;
  };
  for (const Option& option : options.all) {
    CLI::Option* const one = declare(app, option);
    if (!one) continue;
    declared.emplace_back(&option, one);
    one->required(option.required);
    if (option.commas) one->delimiter(',');
    if (option.show_default) one->capture_default_str();
    if (option.range) {
      const auto [least, most] = *option.range;
      if (option.value_name() == "INT")
        one->check(CLI::Range(std::int64_t(least), std::int64_t(most)));
      else
        one->check(CLI::Range(least, most));
    }
    if (!option.choices.empty()) check_words(*one, option);
    for (const Option* other : option.needs) one->needs(of(other));
    for (const Option* other : option.excludes) one->excludes(of(other));
    // What follows a key and its value is not taken for another.
    if (option.names[0] == "--set") one->option_text("table.key=value")->allow_extra_args(false);
  }
  app.footer(options.footer);
  if (options.words) {
    app.prefix_command();
    app.set_help_flag();
  }
}

/// The first argument, if it is no command: CLI11 would take what follows for options of the
/// program.
std::string unknown_command(const Program& program, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  std::vector<std::string_view> names;
  for (const CommandLine& command : program.commands) {
    if (command.name == argv[1]) return "";
    names.push_back(command.name);
  }
  return "unknown command \"" + std::string(argv[1]) + "\"; the nearest is \"" +
         io::nearest_name(argv[1], names) + "\"";
}

}  // namespace

std::string Option::value_name() const {
  return std::visit(
      [&](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::monostate> || std::is_same_v<T, bool*>)
          return "";
        else if constexpr (std::is_same_v<T, Answer>)
          return choices.empty() ? "" : "TEXT";
        else if constexpr (std::is_same_v<T, double*> || std::is_same_v<T, std::vector<double>*>)
          return "FLOAT";
        else if constexpr (std::is_same_v<T, std::string*> ||
                           std::is_same_v<T, std::optional<std::string>*> ||
                           std::is_same_v<T, std::vector<std::string>*>)
          return "TEXT";
        else
          return "INT";
      },
      value);
}

Options::Options() {
  add("-h,--help", Option::Value(), "Print this help message and exit");
}

Option& Options::add(const std::string& names, Option::Value value, std::string meaning,
                     Rules rules) {
  return all.emplace_back(Option{std::move(rules), CLI::detail::split(names, ','), std::move(value),
                                 std::move(meaning)});
}

void Options::add_set(std::vector<std::string>& settings) {
  add("--set", settings,
      "A key and its value, on top of the config; once for each: --set a.b=1 --set c.d=2");
}

void Options::list_names(const std::string& title,
                         const std::vector<std::pair<std::string, std::string>>& names) {
  std::size_t width = 0;
  for (const auto& [name, summary] : names) width = std::max(width, name.size());
  footer = title + ":";
  for (const auto& [name, summary] : names)
    footer += "\n  " + name + std::string(width + 2 - name.size(), ' ') + summary;
}

void Options::take_all(std::vector<std::string>& taken) {
  all.clear();
  words = &taken;
}

int parse_and_run(Program& program, int argc, char** argv) {
  const std::string unknown = unknown_command(program, argc, argv);
  if (!unknown.empty()) return fail(kBadUsage, unknown);
  CLI::App app{program.meaning};
  app.set_version_flag("--version", program.version);
  app.require_subcommand(1);
  int code = kDone;
  for (CommandLine& command : program.commands) {
    CLI::App* const added = app.add_subcommand(command.name, command.meaning);
    declare_all(*added, command.options);
    added->callback([&code, &command, added] {
      if (command.options.words) *command.options.words = added->remaining();
      code = command.run();
    });
  }
  declare_all(app, program.options);
  try {
    app.parse(argc, argv);
    return code;
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return fail(kBadUsage, std::string(error.what()) + " (see millrace --help)");
  }
}

}  // namespace millrace::cli
