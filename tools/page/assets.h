#pragma once

#include <string_view>

namespace millrace::page {

struct Asset {
  std::string_view path;  ///< the requested path: "/app.js"
  std::string_view type;
  std::string_view text;
};

/// Null unless the path matches exactly.
const Asset* find_asset(std::string_view path);

}  // namespace millrace::page
