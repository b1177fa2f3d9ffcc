// How a checkpoint names what it holds beside the weights.
#pragma once

#include <string>
#include <string_view>

namespace millrace::stages {

constexpr std::string_view kStateOf = "optimizer.", kHeadStateOf = "optimizer.read_out.";

/// An optimizer's buffer for a parameter.
inline std::string entry_name(const std::string& buffer, const std::string& parameter) {
  return std::string(kStateOf) + buffer + "." + parameter;
}

/// An auxiliary head's buffer, of the stage that ends with module `last`.
inline std::string head_entry_name(const std::string& buffer, int last) {
  return std::string(kHeadStateOf) + buffer + "." + std::to_string(last);
}

/// The parameter that `entry` is, or is about; "": it is an auxiliary head's.
inline std::string parameter_of(const std::string& entry) {
  if (entry.starts_with(kHeadStateOf)) return "";
  if (!entry.starts_with(kStateOf)) return entry;
  const std::size_t dot = entry.find('.', kStateOf.size());
  return dot == std::string::npos ? "" : entry.substr(dot + 1);
}

}  // namespace millrace::stages
