# Given `command`, `before` and the typed part of the `current` word: "WORD <tab> MEANING" for each word that fits.
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
}
