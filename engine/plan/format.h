// printf into a string.
#pragma once

#include <cstdarg>  // arguments
#include <cstdio>   // vsnprintf
#include <string>   // result

namespace millrace::engine::plan {

/// What printf would print; cut off after 511 characters.
__attribute__((format(printf, 1, 2))) inline std::string format(const char* pattern, ...) {
  char buffer[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(buffer, sizeof buffer, pattern, arguments);
  va_end(arguments);
  return buffer;
}

}  // namespace millrace::engine::plan
