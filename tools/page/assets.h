// The page's files, embedded in the program.
#pragma once

#include <string_view>

namespace millrace::page {

struct Asset {
  std::string_view path;  ///< as asked for: "/app.js"
  std::string_view type;  ///< "text/javascript"
  std::string_view text;
};

/// Null if there is none with exactly this path.
const Asset* find_asset(std::string_view path);

}  // namespace millrace::page
