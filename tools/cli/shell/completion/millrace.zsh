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
