// Completion: a table of what may follow what, an awk program that looks words up in it, and for
// each shell the few lines that call it.
#include <completion_scripts.h>

#include <algorithm>
#include <sstream>

#include "tools/cli/shell/option_text.h"

namespace millrace::cli {
namespace {

/// A line "COMMAND <tab> BEFORE <tab> WORD <tab> MEANING": after COMMAND ("*": any), WORD may
/// follow BEFORE, an option that takes a value, or nothing. WORD "<file>" stands for every file, an
/// empty WORD for a value that cannot be guessed.
void write_line(std::ostream& out, const std::string& command, const std::string& before,
                const std::string& word, std::string meaning = "") {
  std::replace(meaning.begin(), meaning.end(), '\'', '`');  // the table stands in single quotes
  out << command << '\t' << before << '\t' << word << '\t' << meaning << '\n';
}

void write_options(std::ostream& out, const std::string& command, const Options& options) {
  for (const Option& option : options.all) {
    for (const std::string& name : option.names) {
      const std::string before = option.positional() ? "" : name;
      if (!option.positional()) write_line(out, command, "", name, option.meaning);
      if (!option.takes_value() || name == "--set") continue;
      for (const std::string& choice : option.choices) write_line(out, command, before, choice);
      if (option.takes_path()) write_line(out, command, before, "<file>");
      if (!option.positional()) write_line(out, command, before, "");
    }
  }
}

std::string table(const Program& program, const std::vector<app::KeyEntry>& keys) {
  std::ostringstream out;
  write_options(out, "", program.options);
  for (const CommandLine& command : program.commands)
    write_line(out, "", "", command.name, command.meaning);
  for (const CommandLine& command : program.commands)
    write_options(out, command.name, command.options);
  for (const app::KeyEntry& key : keys) {
    write_line(out, "*", "--set", key.path + "=", key.meaning);
    for (const std::string& choice : key.choices)
      write_line(out, "*", key.path, key.path + "=" + choice);
  }
  return out.str();
}

}  // namespace

std::string completion(const Program& program, const std::vector<app::KeyEntry>& keys,
                       const std::string& shell) {
  const bool fish = shell == "fish";
  const std::string assign = fish ? "set -g __millrace_" : "_millrace_", is = fish ? " '" : "='";
  return (shell == "zsh" ? "#compdef millrace\n" : "") + ("# Completion for " + shell) +
         ", written by: millrace --completion " + shell + "\n" + assign + "table" + is +
         table(program, keys) + "'\n" + assign + "look_up" + is + kLookUp + "'\n" +
         (fish             ? kFish
          : shell == "zsh" ? kZsh
                           : kBash);
}

}  // namespace millrace::cli
