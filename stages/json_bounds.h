// JSON from outside: what its parser would take memory for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace millrace::stages {

/// How deep a JSON text is nested, and how much it holds.
struct JsonExtent {
  int depth = 0;
  std::size_t keys = 0, values = 0;
};

/// Of any text, JSON or not. Reads it once and takes no memory: a parser takes some 40 bytes for
/// each bracket, and one that is called back for each value looks at its neighbours every time.
inline JsonExtent json_extent(std::string_view text) {
  JsonExtent extent;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (quoted) {
      continue;
    } else if (c == '[' || c == '{') {
      extent.depth = std::max(extent.depth, ++depth);
      ++extent.values;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',') {
      ++extent.values;
    } else if (c == ':') {
      ++extent.keys;
    }
  }
  return extent;
}

}  // namespace millrace::stages
