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
