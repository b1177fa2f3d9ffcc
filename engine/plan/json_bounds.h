// JSON from outside, within bounds.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <stdexcept>

namespace millrace::engine::plan {

/// Parses a text or a stream, so that memory and time stay of the order of its length: a bracket
/// takes some 40 bytes, and ordered_json looks keys up one after another. Throws std::length_error
/// beyond the bounds; what is no JSON comes back discarded.
template <class Text>
nlohmann::ordered_json parse_bounded(Text&& text) {
  using Json = nlohmann::ordered_json;
  constexpr int kDeepest = 16;
  constexpr std::size_t kMostKeys = 10'000, kMostValues = 500'000;
  std::size_t keys = 0, values = 0;
  const auto within = [&](int depth, Json::parse_event_t event, Json&) {
    if (event == Json::parse_event_t::key) ++keys;
    if (depth > kDeepest || ++values > kMostValues || keys > kMostKeys)
      throw std::length_error("its JSON is nested too deep, or holds too much");
    return true;
  };
  return Json::parse(text, within, false);
}

}  // namespace millrace::engine::plan
