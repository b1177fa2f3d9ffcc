// Completion for bash, without its bash-completion library.
#include <sstream>  // putting it together

#include "tools/shell/option_text.h"

namespace millrace::tools {
namespace {

/// The lines of a `case` over "command option": what may follow.
void write_values(std::ostream& out, const std::string& command, const OptionEntry& option) {
  if (option.positional || option.value.empty()) return;
  out << "    ";
  for (std::size_t i = 0; i < option.names.size(); ++i)
    out << (i > 0 ? " | " : "") << "'" << command << " " << option.names[i] << "'";
  if (option.sets_key())
    out << ") _millrace_setting ;;\n";
  else if (option.takes_path())
    out << ") ;;\n";  // files, as without completion
  else
    out << ") _millrace_offer '" << joined(option.choices) << "' ;;\n";
}

/// What stands where no option's value is due: options, or positionals that name their values.
void write_words(std::ostream& out, const std::string& command,
                 const std::vector<OptionEntry>& options, std::vector<std::string> words) {
  std::vector<std::string> dashed;
  for (const OptionEntry& option : options) {
    std::vector<std::string>& to = option.positional ? words : dashed;
    const std::vector<std::string>& names = option.positional ? option.choices : option.names;
    to.insert(to.end(), names.begin(), names.end());
  }
  out << "    '" << command << " -'*) _millrace_offer '" << joined(dashed) << "' ;;\n";
  if (!words.empty())
    out << "    '" << command << " '*) _millrace_offer '" << joined(words) << "' ;;\n";
}

constexpr const char* kHead = R"(# Completion for bash, written by: millrace --completion bash

# Offers the words of a list that begin as what has been typed. An empty list: nothing, not files.
_millrace_offer() {
  compopt +o default 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}
)";

constexpr const char* kSetting = R"(
# table.key=value. Bash hands it over as three words unless '=' was taken out of COMP_WORDBREAKS.
_millrace_setting() {
  if [[ $cur == *=* ]]; then
    local key=${cur%%=*}
    cur=${cur#*=}
    _millrace_value "$key"
    COMPREPLY=("${COMPREPLY[@]/#/$key=}")
  else
    _millrace_offer "$_millrace_keys"
    compopt -o nospace 2>/dev/null
  fi
}

_millrace() {
  local cur=${COMP_WORDS[COMP_CWORD]} at=$((COMP_CWORD - 1)) command=${COMP_WORDS[1]}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then command=; fi
  if [[ $cur == '=' ]]; then
    cur=
  elif [[ ${COMP_WORDS[at]} == '=' ]]; then
    at=$((at - 1))
  else
    _millrace_word "$command" "${COMP_WORDS[at]}"
    return
  fi
  # Behind a '=': an option's value, or a key's.
  if [[ ${COMP_WORDS[at]} == -* ]]; then
    _millrace_word "$command" "${COMP_WORDS[at]}"
  else
    _millrace_value "${COMP_WORDS[at]}"
  fi
}

)";

}  // namespace

std::string bash_completion(const OptionTree& tree) {
  std::ostringstream out;
  out << kHead << "\n_millrace_keys='";
  for (const KeyEntry& key : tree.keys) out << "\n  " << key.path << "=";
  out << "'\n\n_millrace_value() {\n  case $1 in\n";
  for (const KeyEntry& key : tree.keys) {
    if (!key.choices.empty())
      out << "    " << key.path << ") _millrace_offer '" << joined(key.choices) << "' ;;\n";
  }
  out << "  esac\n}\n\n# What may follow \"command word\".\n_millrace_word() {\n"
         "  case \"$1 $2\" in\n";
  for (const OptionEntry& option : tree.options) write_values(out, "", option);
  for (const CommandEntry& command : tree.commands) {
    for (const OptionEntry& option : command.options) write_values(out, command.name, option);
  }
  out << "    *) _millrace_free \"$1\" ;;\n  esac\n}\n\n"
         "# Where no value is due.\n_millrace_free() {\n  case \"$1 $cur\" in\n";
  std::vector<std::string> names;
  for (const CommandEntry& command : tree.commands) names.push_back(command.name);
  write_words(out, "", tree.options, names);
  for (const CommandEntry& command : tree.commands)
    write_words(out, command.name, command.options, {});
  out << "  esac\n}\n" << kSetting << "complete -o default -F _millrace millrace\n";
  return out.str();
}

}  // namespace millrace::tools
