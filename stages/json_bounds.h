#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace millrace::stages {

/// The depth of a JSON text, its number of values, and the most keys of an object.
struct JsonExtent {
  int depth = 0;
  std::size_t keys = 0;  ///< of one object
  std::size_t values = 0;
};

/// For any text. Reads it once without allocating: a parser takes some 40 bytes per bracket, and
/// one with a callback per value visits the value's neighbours every time.
inline JsonExtent json_extent(std::string_view text) {
  JsonExtent extent;
  int depth = 0;
  std::array<std::size_t, 64> keys{};  // of the open object, by depth; deeper ones together
  const auto open = [&] { return std::size_t(std::clamp(depth, 0, int(keys.size()) - 1)); };
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
      keys[open()] = 0;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',') {
      ++extent.values;
    } else if (c == ':') {
      extent.keys = std::max(extent.keys, ++keys[open()]);
    }
  }
  return extent;
}

/// Parses untrusted `text` as a `Json` (nlohmann::ordered_json, whose key look-up is linear) if
/// that takes memory and time of the order of its length; otherwise throws std::length_error.
/// Invalid JSON comes back discarded.
template <class Json>
Json parse_bounded(const std::string& text) {
  const JsonExtent extent = json_extent(text);
  if (extent.depth > 16 || extent.values > 500'000 || extent.keys > 2'000)
    throw std::length_error("its JSON is nested too deep, or holds too much");
  return Json::parse(text, nullptr, false);
}

}  // namespace millrace::stages
