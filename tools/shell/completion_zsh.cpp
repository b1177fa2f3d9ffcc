// Completion for zsh.
#include <sstream>  // putting it together

#include "tools/shell/option_text.h"

namespace millrace::tools {
namespace {

/// Inside single quotes, and inside a spec of _arguments, where some signs mean something.
std::string spec(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else if (c == '[' || c == ']' || c == ':' || c == '\\')
      out += std::string("\\") + c;
    else
      out += c;
  }
  return out;
}

/// How an argument of `option` is completed: the last part of its spec.
std::string action(const OptionEntry& option) {
  if (!option.positional && option.sets_key()) return "_millrace_setting";
  if (!option.choices.empty()) return "(" + joined(option.choices) + ")";
  return option.takes_path() ? "_files" : " ";
}

void write_options(std::ostream& out, const std::vector<OptionEntry>& options) {
  for (const OptionEntry& option : options) {
    if (option.positional) {
      out << " \\\n        ':" << spec(option.names[0]) << ":" << action(option) << "'";
      continue;
    }
    for (const std::string& name : option.names) {
      out << " \\\n        '" << (option.sets_key() ? "*" : "") << name << "["
          << spec(option.meaning) << "]";
      if (!option.value.empty()) out << ":" << spec(option.value) << ":" << action(option);
      out << "'";
    }
  }
}

}  // namespace

std::string zsh_completion(const OptionTree& tree) {
  std::ostringstream out;
  out << "#compdef millrace\n# Completion for zsh, written by: millrace --completion zsh\n\n"
         "_millrace_setting() {\n  if compset -P 1 '*='; then\n    case ${IPREFIX%=} in\n";
  for (const KeyEntry& key : tree.keys) {
    if (!key.choices.empty())
      out << "      " << key.path << ") compadd -- " << joined(key.choices) << " ;;\n";
  }
  out << "      *) _files ;;\n    esac\n  else\n    compadd -S = --";
  for (const KeyEntry& key : tree.keys) out << " \\\n      " << key.path;
  out << "\n  fi\n}\n\n_millrace() {\n  local context state line\n  typeset -A opt_args\n"
         "  _arguments -C";
  write_options(out, tree.options);
  out << " \\\n        '1: :->command' '*:: :->rest'\n  case $state in\n    command)\n"
         "      local -a commands=(";
  for (const CommandEntry& command : tree.commands)
    out << "\n        '" << command.name << ":" << spec(command.meaning) << "'";
  out << ")\n      _describe command commands ;;\n    rest)\n      case $words[1] in\n";
  for (const CommandEntry& command : tree.commands) {
    out << "      " << command.name << ") _arguments";
    write_options(out, command.options);
    out << " ;;\n";
  }
  out << "      esac ;;\n  esac\n}\n\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  _millrace \"$@\"\nelse\n"
         "  compdef _millrace millrace\nfi\n";
  return out.str();
}

}  // namespace millrace::tools
