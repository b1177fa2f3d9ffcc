// printf into a string.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

namespace millrace::engine {

/// What printf would print.
__attribute__((format(printf, 1, 2))) inline std::string format(const char* pattern, ...) {
  va_list arguments, again;
  va_start(arguments, pattern);
  va_copy(again, arguments);
  std::string text(std::size_t(std::vsnprintf(nullptr, 0, pattern, arguments)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  va_end(arguments);
  return text;
}

}  // namespace millrace::engine
