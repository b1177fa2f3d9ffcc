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
  /// What /state shows, but for what follows from several snapshots and from the server; see
  /// assets/openapi.json. Texts may contain URIs with credentials, which json.h takes out.
  Json state = Json::object();
  engine::FrameCounts frames;
  std::vector<engine::Histogram> busy;  ///< by stage: every step of every replica
  engine::Histogram latency;            ///< capture to prediction
};

/// What `state` has at `path`, as "/loss/recent": a number, 1 for true or a text, 0 for false or an
/// empty text; nan: nothing.
inline double number_at(const Json& state, const std::string& path) {
  const Json::json_pointer at(path);
  if (!state.contains(at)) return std::numeric_limits<double>::quiet_NaN();
  const Json& value = state[at];
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  if (value.is_boolean()) return value.get<bool>();
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

/// The text there; "": there is none.
inline std::string text_at(const Json& state, const std::string& path) {
  return state.value(Json::json_pointer(path), "");
}

}  // namespace millrace::page
