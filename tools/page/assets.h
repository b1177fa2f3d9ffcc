// The page's files, embedded in the program.
#pragma once

#include <string_view>

namespace millrace::page {

struct Asset {
  std::string_view path;  ///< as requested: "/app.js"
  std::string_view type;
  std::string_view text;
};

/// Null unless the path matches exactly.
const Asset* find_asset(std::string_view path);

}  // namespace millrace::page
