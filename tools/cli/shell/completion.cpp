// Completion: a table of the words that may follow others, an awk program that looks words up in
// it, and a bash function that calls it.
#include <completion_scripts.h>

#include <algorithm>
#include <sstream>

#include "tools/cli/shell/option_text.h"

namespace millrace::cli {
namespace {

/// A line "COMMAND <tab> BEFORE <tab> WORD <tab> MEANING": after COMMAND ("*": any), WORD may
/// follow BEFORE, an option that takes a value, or nothing. WORD "<file>" stands for every file, an
/// empty WORD for a value that can't be guessed.
void write_line(std::ostream& out, const std::string& command, const std::string& before,
                const std::string& word, std::string meaning = "") {
  std::replace(meaning.begin(), meaning.end(), '\'', '`');  // the table is in single quotes
  out << command << '\t' << before << '\t' << word << '\t' << meaning << '\n';
}

void write_options(std::ostream& out, const std::string& command, const CLI::App& app) {
  for (const CLI::Option* const option : app.get_options()) {
    const bool positional = option->get_positional();
    for (const std::string& name : names_of(*option)) {
      const std::string before = positional ? "" : name;
      if (!positional) write_line(out, command, "", name, option->get_description());
      if (option->get_items_expected_max() == 0 || name == "--set") continue;
      for (const std::string& choice : choices_of(*option))
        write_line(out, command, before, choice);
      if (option->get_type_name() == "TEXT") write_line(out, command, before, "<file>");
      if (!positional) write_line(out, command, before, "");
    }
  }
}

std::string table(const CLI::App& program, const std::vector<app::KeyEntry>& keys) {
  std::ostringstream out;
  const auto commands = program.get_subcommands({});
  write_options(out, "", program);
  for (const CLI::App* const command : commands)
    write_line(out, "", "", command->get_name(), command->get_description());
  for (const CLI::App* const command : commands) write_options(out, command->get_name(), *command);
  for (const app::KeyEntry& key : keys) {
    write_line(out, "*", "--set", key.path + "=", key.meaning);
    for (const std::string& choice : key.choices)
      write_line(out, "*", key.path, key.path + "=" + choice);
  }
  return out.str();
}

}  // namespace

std::vector<std::string> names_of(const CLI::Option& option) {
  return CLI::detail::split(option.get_name(false, true), ',');
}

std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();  // such as "TEXT:{grid,csv}"
  const std::size_t open = type.find('{');
  if (open == type.npos) return {};
  return CLI::detail::split(type.substr(open + 1, type.rfind('}') - open - 1), ',');
}

std::string completion(const CLI::App& program, const std::vector<app::KeyEntry>& keys) {
  return "# Completion for bash, written by: millrace --completion bash\n_millrace_table='" +
         table(program, keys) + "'\n_millrace_look_up='" + kLookUp + "'\n" + kBash;
}

}  // namespace millrace::cli
