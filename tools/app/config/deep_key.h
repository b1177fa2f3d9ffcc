// TOML keys with too many parts would overflow the parser's stack, which recurses for each part.
#pragma once

#include <algorithm>
#include <string_view>

namespace millrace::app {

/// The line (from 1) in `text` of a key with too many parts; 0: none. Takes even invalid TOML.
inline int line_of_deep_key(std::string_view text) {
  constexpr int kMostDots = 32;
  int dots = 0, line = 1;
  const auto pass_to = [&](std::size_t at) {
    line += int(std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n'));
    text.remove_prefix(at);
  };
  while (!text.empty()) {
    const char c = text.front();
    if (c == '#') {
      pass_to(std::min(text.size(), text.find('\n')));
    } else if (c == '"' || c == '\'') {
      const bool whole_lines = text.size() >= 3 && text[1] == c && text[2] == c;
      const std::string_view end = whole_lines ? text.substr(0, 3) : text.substr(0, 1);
      std::size_t at = end.size();
      while (at < text.size() && !text.substr(at).starts_with(end) &&
             (whole_lines || text[at] != '\n'))
        at += c == '"' && text[at] == '\\' ? 2 : 1;
      const bool ended = at < text.size() && text[at] == c;
      pass_to(std::min(text.size(), at + (ended ? end.size() : 0)));
    } else {
      if (c == '.' && ++dots > kMostDots) return line;
      if (std::string_view("=,{}[]\n").find(c) != std::string_view::npos) dots = 0;
      pass_to(1);
    }
  }
  return 0;
}

}  // namespace millrace::app
