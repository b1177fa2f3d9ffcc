# Bash hands "a=b" over as three words unless '=' was taken out of COMP_WORDBREAKS.
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
