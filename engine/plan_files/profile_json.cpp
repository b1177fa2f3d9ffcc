#include "engine/plan_files/profile_json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>

#include "stages/json_bounds.h"

namespace millrace::engine::plan {
namespace {

using Json = nlohmann::ordered_json;

// Everywhere below, `where` names the object with the field; "": the file's outermost.

[[noreturn]] void fail(const std::string& what, const std::string& where = "") {
  throw ProfileError(where.empty() ? what : where + ": " + what);
}

const Json& at(const Json& object, const std::string& field, const std::string& where = "") {
  const auto found = object.find(field);
  if (found == object.end()) fail(field + " is missing", where);
  return *found;
}

/// Refuses unknown fields: otherwise a misspelt optional field would go unnoticed.
void require_known(const Json& object, const std::vector<std::string>& fields,
                   const std::string& where = "") {
  for (const auto& [name, value] : object.items()) {
    if (std::find(fields.begin(), fields.end(), name) == fields.end())
      fail("unknown field \"" + name + "\"", where);
  }
}

double number(const Json& object, const std::string& field, const std::string& where = "") {
  const Json& value = at(object, field, where);
  if (!value.is_number()) fail(field + " is not a number", where);
  return value.get<double>();
}

double number_or(const Json& object, const char* field, double other,
                 const std::string& where = "") {
  return object.contains(field) ? number(object, field, where) : other;
}

int count_or(const Json& object, const char* field, int other, const std::string& where = "") {
  const double value = number_or(object, field, other, where);
  if (!(value >= 1 && value <= 1e9) || value != int(value))
    fail(std::string(field) + " is no count", where);
  return int(value);
}

std::string text_or(const Json& object, const char* field, const std::string& where = "") {
  if (!object.contains(field)) return "";
  if (!object.at(field).is_string()) fail(std::string(field) + " is no text", where);
  return object.at(field).get<std::string>();
}

const Json& list(const Json& object, const char* field, const std::string& where = "") {
  const Json& value = at(object, field, where);
  if (!value.is_array()) fail(std::string(field) + " is no list", where);
  return value;
}

/// The elements of a list of `count` numbers; empty if `value` is anything else.
std::vector<double> numbers(const Json& value, std::size_t count) {
  const auto is_number = [](const Json& element) { return element.is_number(); };
  if (!value.is_array() || value.size() != count ||
      !std::all_of(value.begin(), value.end(), is_number)) {
    return {};
  }
  return value.get<std::vector<double>>();
}

/// [median, spread], or the median alone.
Measured measured(const Json& object, const std::string& field, const std::string& where) {
  const Json& value = at(object, field, where);
  if (value.is_number()) return {value.get<double>(), 0};
  const std::vector<double> pair = numbers(value, 2);
  if (pair.empty()) fail(field + " is not [median, spread]", where);
  return {pair[0], pair[1]};
}

/// Each element: [ways, forward, input gradient, weight gradient, update].
void read_parts(ModuleProfile& module, const Json& all, const std::string& where) {
  for (const Json& one : all) {
    const std::vector<double> part = numbers(one, 5);
    if (part.empty() || part[0] < 2 || part[0] > 1e4)
      fail("tensor_ms is no list of [parts, ms, ms, ms, ms]", where);
    module.parts[int(part[0])] = {part[1], part[2], part[3], part[4]};
  }
}

ModuleProfile read_module(const Json& json, std::size_t index) {
  std::string where = "module " + std::to_string(index);
  if (!json.is_object()) fail("is no object", where);
  ModuleProfile module;
  module.name = text_or(json, "name", where);
  if (module.name.empty()) fail("name is missing", where);
  where += " (" + module.name + ")";
  std::vector<std::string> fields = {"name", "tensor_ways", "tensor_bytes", "tensor_gradient_bytes",
                                     "tensor_ms"};
  for (const auto& [field, time] : kTimes) fields.push_back(std::string(field) + "_ms");
  for (const auto& [field, size] : kSizes) fields.push_back(field);
  require_known(json, fields, where);
  for (const auto& [field, time] : kTimes)
    module.*time = measured(json, std::string(field) + "_ms", where);
  for (const auto& [field, size] : kSizes) {
    if (size == &StepBytes::state && !json.contains(field)) continue;
    module.bytes.*size = number(json, field, where);
  }
  module.tensor_ways = count_or(json, "tensor_ways", 1, where);
  module.tensor_bytes = number_or(json, "tensor_bytes", 0, where);
  module.tensor_gradient_bytes =
      number_or(json, "tensor_gradient_bytes", module.tensor_bytes, where);
  if (json.contains("tensor_ms")) read_parts(module, list(json, "tensor_ms", where), where);
  return module;
}

HandOff read_hand_off(const Json& json) {
  HandOff hand_off;
  if (!json.is_object()) fail("a hand-off is no object");
  hand_off.between = text_or(json, "between");
  const std::string where = "hand-off " + hand_off.between;
  require_known(json, {"between", "bytes_ms"}, where);
  for (const Json& point : list(json, "bytes_ms", where)) {
    const std::vector<double> pair = numbers(point, 2);
    if (pair.empty()) fail("bytes_ms is no list of [bytes, ms]", where);
    hand_off.points.push_back({pair[0], pair[1]});
  }
  return hand_off;
}

Profile read(const Json& json) {
  if (!json.is_object() || number_or(json, "millrace_profile", 0) != 1) {
    fail("millrace_profile is not 1: no profile, or a later one");
  }
  require_known(json, {"millrace_profile", "network", "source", "device", "frames", "input_bytes",
                       "thread_speedup", "hand_offs", "modules"});
  Profile profile;
  profile.network = text_or(json, "network");
  profile.source = text_or(json, "source");
  profile.device = text_or(json, "device");
  profile.frames = count_or(json, "frames", 1);
  profile.input_bytes = number_or(json, "input_bytes", 0);
  if (json.contains("thread_speedup")) {
    const Json& speeds = list(json, "thread_speedup");
    profile.thread_speedup = numbers(speeds, speeds.size());
    if (profile.thread_speedup.size() != speeds.size())
      fail("thread_speedup is no list of numbers");
  }
  if (json.contains("hand_offs")) {
    for (const Json& value : list(json, "hand_offs"))
      profile.hand_offs.push_back(read_hand_off(value));
  }
  for (const Json& value : list(json, "modules"))
    profile.modules.push_back(read_module(value, profile.modules.size()));
  return profile;
}

Json write(const ModuleProfile& module) {
  Json json = {{"name", module.name}};
  for (const auto& [field, time] : kTimes)
    json[std::string(field) + "_ms"] = {(module.*time).median, (module.*time).spread};
  for (const auto& [field, size] : kSizes) json[field] = module.bytes.*size;
  json["tensor_ways"] = module.tensor_ways;
  json["tensor_bytes"] = module.tensor_bytes;
  json["tensor_gradient_bytes"] = module.tensor_gradient_bytes;
  json["tensor_ms"] = Json::array();
  for (const auto& [ways, ms] : module.parts) {
    json["tensor_ms"].push_back(
        {ways, ms.forward, ms.input_gradient, ms.weight_gradient, ms.update});
  }
  return json;
}

}  // namespace

std::string profile_to_json(const Profile& profile) {
  Json head = {{"millrace_profile", 1},
               {"network", profile.network},
               {"source", profile.source},
               {"device", profile.device},
               {"frames", profile.frames},
               {"input_bytes", profile.input_bytes},
               {"thread_speedup", profile.thread_speedup},
               {"hand_offs", Json::array()}};
  for (const HandOff& hand_off : profile.hand_offs) {
    head["hand_offs"].push_back({{"between", hand_off.between}, {"bytes_ms", hand_off.points}});
  }
  std::string text = head.dump(1);
  text.erase(text.rfind('\n'));  // and the closing brace
  text += ",\n \"modules\": [";
  for (std::size_t i = 0; i < profile.modules.size(); ++i) {
    text += (i > 0 ? ",\n  " : "\n  ") + write(profile.modules[i]).dump();
  }
  return text + "\n ]\n}\n";
}

Profile profile_from_json(const std::string& text, const std::string& name) {
  try {
    const Json json = stages::parse_bounded<Json>(text);
    // Json::parse() throws with the reason.
    Profile profile = read(json.is_discarded() ? Json::parse(text) : json);
    check_profile(profile);
    return profile;
  } catch (const Json::exception& error) {
    fail(std::string("is no JSON: ") + error.what(), name);
  } catch (const std::length_error& error) {
    fail(error.what(), name);
  } catch (const ProfileError& error) {
    fail(error.what(), name);
  }
}

}  // namespace millrace::engine::plan
