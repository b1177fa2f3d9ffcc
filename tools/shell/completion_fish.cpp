// Completion for fish.
#include <sstream>  // putting it together

#include "tools/shell/option_text.h"

namespace millrace::tools {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

void write_option(std::ostream& out, const std::string& condition, const OptionEntry& option) {
  if (option.positional) {
    if (!option.choices.empty())
      out << condition << " -a " << quoted(joined(option.choices)) << "\n";
    if (!option.takes_path() && option.choices.empty()) return;
    out << condition << " -F\n";  // a positional may be a file, too
    return;
  }
  out << condition;
  for (const std::string& name : option.names)
    out << (name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1));
  if (option.sets_key())
    out << " -x -a '(__millrace_keys)'";
  else if (option.takes_path())
    out << " -r -F";
  else if (!option.value.empty())
    out << " -x -a " << quoted(joined(option.choices));
  out << " -d " << quoted(option.meaning) << "\n";
}

}  // namespace

std::string fish_completion(const OptionTree& tree) {
  std::ostringstream out;
  out << "# Completion for fish, written by: millrace --completion fish\n"
         "function __millrace_keys\n  printf '%s\\t%s\\n'";
  for (const KeyEntry& key : tree.keys) {
    out << " \\\n    " << key.path << "= " << quoted(key.meaning);
    for (const std::string& choice : key.choices)
      out << " \\\n    " << key.path << "=" << choice << " ''";
  }
  out << "\nend\n\ncomplete -c millrace -f\n";
  const std::string program = "complete -c millrace -n __fish_use_subcommand";
  for (const OptionEntry& option : tree.options) write_option(out, program, option);
  for (const CommandEntry& command : tree.commands) {
    out << program << " -a " << command.name << " -d " << quoted(command.meaning) << "\n";
    const std::string condition =
        "complete -c millrace -n '__fish_seen_subcommand_from " + command.name + "'";
    for (const OptionEntry& option : command.options) write_option(out, condition, option);
  }
  return out.str();
}

}  // namespace millrace::tools
