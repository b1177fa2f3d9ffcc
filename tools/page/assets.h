// The page's own files, which the program carries in itself.
#pragma once

#include <string_view>  // files

namespace millrace::page {

struct Asset {
  std::string_view path;  ///< as asked for: "/app.js"
  std::string_view type;  ///< "text/javascript"
  std::string_view text;
};

/// Null if there is none of that very path.
const Asset* find_asset(std::string_view path);

}  // namespace millrace::page
