#pragma once

#include <cstdarg>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::engine {

/// vsprintf into a string.
__attribute__((format(printf, 1, 0))) inline std::string format_list(const char* pattern,
                                                                     va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  std::string text(std::size_t(std::vsnprintf(nullptr, 0, pattern, arguments)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  return text;
}

/// sprintf into a string.
__attribute__((format(printf, 1, 2))) inline std::string format(const char* pattern, ...) {
  va_list arguments;
  va_start(arguments, pattern);
  std::string text = format_list(pattern, arguments);
  va_end(arguments);
  return text;
}

/// Throws std::invalid_argument with a message as by format() unless `holds`.
__attribute__((format(printf, 2, 3))) inline void require_that(bool holds, const char* pattern,
                                                               ...) {
  if (holds) return;
  va_list arguments;
  va_start(arguments, pattern);
  const std::string text = format_list(pattern, arguments);
  va_end(arguments);
  throw std::invalid_argument(text);
}

/// "1.7 times better than", "112 times worse than", "as good as". `times`: above 0.
inline std::string times_better(double times) {
  if (times < 1.01 && 1 / times < 1.01) return "as good as";
  return times < 1 ? format("%.3g times worse than", 1 / times)
                   : format("%.3g times better than", times);
}

/// Splits `text` at each `by`; at least one part.
inline std::vector<std::string> split(std::string_view text, std::string_view by) {
  std::vector<std::string> parts;
  for (std::size_t at; (at = text.find(by)) != text.npos; text.remove_prefix(at + by.size()))
    parts.emplace_back(text.substr(0, at));
  parts.emplace_back(text);
  return parts;
}

}  // namespace millrace::engine
