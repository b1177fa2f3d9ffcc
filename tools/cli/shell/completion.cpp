// Completion: a table of what may follow what, an awk program that looks words up in it, and for
// each shell the few lines that call it.
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

/// Given `command`, `before` and the typed part of the `current` word: "WORD <tab> MEANING" for
/// each word that fits.
constexpr const char* kLookUp = R"(
BEGIN {
  FS = "\t"
  equals = index(current, "=")
  if (equals && current ~ /^--/) {
    before = prefix = substr(current, 1, equals)
    sub(/=$/, "", before)
  } else if (equals && before == "--set") before = substr(current, 1, equals - 1)
}
$1 != command && $1 != "*" { next }
$1 == "*" && $2 != "--set" { values[$2 "="] = values[$2 "="] FS $3 }
$2 == before { due = due prefix $3 FS $4 "\n"; known = 1 }
$2 == "" { free = free $3 FS $4 "\n" }
END {
  count = split(known ? due : free, lines, "\n")
  for (i = 1; i < count; ++i) {
    file = index(lines[i], "<file>") > 0
    fits = file ? current !~ /^-/ : index(lines[i], current) == 1
    if (!fits || lines[i] ~ /^-/ && current !~ /^-/) continue
    print lines[i]
    word = lines[i]
    ++found
  }
  sub(FS ".*", "", word)
  if (found == 1) {  # a key that is meant for certain: its values as well
    count = split(values[word], lines, FS)
    for (i = 2; i <= count; ++i) print lines[i]
  }
})";

// Bash hands "a=b" over as three words unless '=' was taken out of COMP_WORDBREAKS.
constexpr const char* kBash = R"(
_millrace() {
  local word glue='' words=() i files=''
  for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
    if [[ $word == '=' || $glue ]] && ((${#words[@]})); then words[-1]+=$word; else words+=("$word"); fi
    if [[ $word == '=' ]]; then glue=1; else glue=''; fi
  done
  local count=${#words[@]} last=${COMP_WORDS[COMP_CWORD]#=} command='' before=''
  if ((count > 1)); then command=${words[0]} before=${words[-2]}; fi
  mapfile -t COMPREPLY < <(awk -v command="$command" -v before="$before" -v current="${words[-1]}" \
    "$_millrace_look_up" <<<"$_millrace_table" | cut -f1)
  for i in "${!COMPREPLY[@]}"; do
    if [[ ${COMPREPLY[i]} == *'<file>' ]]; then files=1; fi
    if [[ ! ${COMPREPLY[i]} || ${COMPREPLY[i]} == *'<file>' ]]; then unset "COMPREPLY[i]"; continue; fi
    COMPREPLY[i]=${COMPREPLY[i]:${#words[-1]} - ${#last}}
    if [[ ${COMPREPLY[i]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
  done
  if [[ ! $files ]]; then compopt +o default 2>/dev/null; fi
}
complete -o default -F _millrace millrace
)";

constexpr const char* kZsh = R"(
_millrace() {
  local line command='' before=''
  local -a lines
  if ((CURRENT > 2)); then command=$words[2] before=$words[CURRENT-1]; fi
  lines=("${(@f)$(awk -v command="$command" -v before="$before" -v current="$words[CURRENT]" \
    "$_millrace_look_up" <<<"$_millrace_table")}")
  for line in $lines; do
    case $line in
      *'<file>'*) _files ;;
      *=$'\t'*) compadd -S '' -- ${line%%$'\t'*} ;;
      ?*) compadd -- ${line%%$'\t'*} ;;
    esac
  done
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _millrace "$@"; else compdef _millrace millrace; fi
)";

constexpr const char* kFish = R"(
function __millrace_words
  set -l words (commandline -opc) (commandline -ct)
  set -l command ''
  set -l before ''
  if test (count $words) -gt 2
    set command $words[2]
    set before $words[-2]
  end
  for line in (printf '%s' $__millrace_table | \
      awk -v command=$command -v before=$before -v current=$words[-1] $__millrace_look_up)
    string match -q '*<file>*' -- $line; and __fish_complete_path $words[-1]; or echo $line
  end
end
complete -c millrace -f -a '(__millrace_words)'
)";

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
