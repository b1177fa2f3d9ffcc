// What viewers see of a run at one moment.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/monitor/real_time.h"

namespace millrace::page {

using Json = nlohmann::ordered_json;

struct Snapshot {
  /// What /state shows (see assets/openapi.json), without what follows from several snapshots or
  /// comes from the server. URIs may contain credentials, which json.h removes.
  Json state = Json::object();
  engine::FrameCounts frames;
  std::vector<engine::Histogram> busy;  ///< per stage: every step of every replica
  engine::Histogram latency;            ///< capture to prediction
};

/// The number at `path`, such as "/loss/recent": true and text count as 1, false and empty text as
/// 0; NaN: nothing is there.
inline double number_at(const Json& state, const std::string& path) {
  const Json::json_pointer at(path);
  if (!state.contains(at)) return std::numeric_limits<double>::quiet_NaN();
  const Json& value = state[at];
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  if (value.is_boolean()) return value.get<bool>();
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

inline std::string text_at(const Json& state, const std::string& path) {
  return state.value(Json::json_pointer(path), "");
}

}  // namespace millrace::page
