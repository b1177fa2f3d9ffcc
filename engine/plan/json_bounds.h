// JSON from outside, within bounds.
#pragma once

#include <nlohmann/json.hpp>

#include <stdexcept>
#include <string>

#include "stages/json_bounds.h"

namespace millrace::engine::plan {

/// Parses a text, so that memory and time stay of the order of its length: ordered_json looks keys
/// up one after another. Throws std::length_error beyond the bounds; what is no JSON comes back
/// discarded.
inline nlohmann::ordered_json parse_bounded(const std::string& text) {
  const stages::JsonExtent extent = stages::json_extent(text);
  if (extent.depth > 16 || extent.values > 500'000 || extent.keys > 10'000)
    throw std::length_error("its JSON is nested too deep, or holds too much");
  return nlohmann::ordered_json::parse(text, nullptr, false);
}

}  // namespace millrace::engine::plan
