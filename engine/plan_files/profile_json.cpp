#include "engine/plan_files/profile_json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>

#include "stages/json_bounds.h"

namespace millrace::engine::plan {
namespace {

using Json = nlohmann::ordered_json;

/// An object of the file. `where` names it in errors; "": the outermost.
class Fields {
 public:
  explicit Fields(const Json& json, std::string where = "")
      : json_(json), where_(std::move(where)) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw ProfileError(where_.empty() ? what : where_ + ": " + what);
  }
  /// Refuses unknown fields: otherwise a misspelt optional field would go unnoticed.
  void require_known(const std::vector<std::string>& fields) const {
    for (const auto& [name, value] : json_.items()) {
      if (std::ranges::find(fields, name) == fields.end()) fail("unknown field \"" + name + "\"");
    }
  }
  bool has(const std::string& field) const { return json_.contains(field); }
  const Json& at(const std::string& field) const {
    if (!has(field)) fail(field + " is missing");
    return json_.at(field);
  }
  double number(const std::string& field) const {
    if (!at(field).is_number()) fail(field + " is not a number");
    return at(field).get<double>();
  }
  double number_or(const std::string& field, double other) const {
    return has(field) ? number(field) : other;
  }
  int count_or_1(const std::string& field) const {
    const double value = number_or(field, 1);
    if (!(value >= 1 && value <= 1e9) || value != int(value)) fail(field + " is no count");
    return int(value);
  }
  std::string text_or_none(const std::string& field) const {
    if (!has(field)) return "";
    if (!at(field).is_string()) fail(field + " is no text");
    return at(field).get<std::string>();
  }
  const Json& list(const std::string& field) const {
    if (!at(field).is_array()) fail(field + " is no list");
    return at(field);
  }
  const Json& list_or_none(const std::string& field) const {
    static const Json none = Json::array();
    return has(field) ? list(field) : none;
  }
  /// Each element of the list is itself a list of `count` numbers, which `form` describes.
  std::vector<std::vector<double>> rows(const std::string& field, std::size_t count,
                                        const std::string& form) const {
    std::vector<std::vector<double>> rows;
    for (const Json& row : list_or_none(field)) {
      if (!is_numbers(row) || row.size() != count) fail(field + " is no list of " + form);
      rows.push_back(row.get<std::vector<double>>());
    }
    return rows;
  }
  /// [median, spread], or the median alone.
  Measured measured(const std::string& field) const {
    const Json& value = at(field);
    if (value.is_number()) return {value.get<double>(), 0};
    if (!is_numbers(value) || value.size() != 2) fail(field + " is not [median, spread]");
    return {value[0].get<double>(), value[1].get<double>()};
  }
  static bool is_numbers(const Json& value) {
    return value.is_array() && std::ranges::all_of(value, &Json::is_number);
  }

 private:
  const Json& json_;
  const std::string where_;
};

ModuleProfile read_module(const Json& json, std::size_t index) {
  const Fields unnamed(json, "module " + std::to_string(index));
  if (!json.is_object()) unnamed.fail("is no object");
  ModuleProfile module{.name = unnamed.text_or_none("name")};
  if (module.name.empty()) unnamed.fail("name is missing");
  const Fields from(json, "module " + std::to_string(index) + " (" + module.name + ")");
  std::vector<std::string> fields = {"name", "tensor_ways", "tensor_bytes", "tensor_gradient_bytes",
                                     "tensor_ms"};
  for (const auto& [field, time] : kTimes) fields.push_back(std::string(field) + "_ms");
  for (const auto& [field, size] : kSizes) fields.push_back(field);
  from.require_known(fields);
  for (const auto& [field, time] : kTimes) module.*time = from.measured(std::string(field) + "_ms");
  for (const auto& [field, size] : kSizes)
    module.bytes.*size = size == &StepBytes::state ? from.number_or(field, 0) : from.number(field);
  module.tensor_ways = from.count_or_1("tensor_ways");
  module.tensor_bytes = from.number_or("tensor_bytes", 0);
  module.tensor_gradient_bytes = from.number_or("tensor_gradient_bytes", module.tensor_bytes);
  const std::string form = "[parts, ms, ms, ms, ms]";
  for (const auto& part : from.rows("tensor_ms", 5, form)) {
    if (part[0] < 2 || part[0] > 1e4) from.fail("tensor_ms is no list of " + form);
    module.parts[int(part[0])] = {part[1], part[2], part[3], part[4]};
  }
  return module;
}

HandOff read_hand_off(const Json& json) {
  if (!json.is_object()) throw ProfileError("a hand-off is no object");
  HandOff hand_off{.between = Fields(json).text_or_none("between")};
  const Fields from(json, "hand-off " + hand_off.between);
  from.require_known({"between", "bytes_ms"});
  from.at("bytes_ms");  // required
  for (const auto& point : from.rows("bytes_ms", 2, "[bytes, ms]"))
    hand_off.points.emplace_back(point[0], point[1]);
  return hand_off;
}

Profile read(const Json& json) {
  const Fields from(json);
  if (!json.is_object() || from.number_or("millrace_profile", 0) != 1)
    from.fail("millrace_profile is not 1: no profile, or a later one");
  from.require_known({"millrace_profile", "network", "source", "device", "frames", "input_bytes",
                      "thread_speedup", "hand_offs", "modules"});
  Profile profile{.network = from.text_or_none("network"),
                  .source = from.text_or_none("source"),
                  .device = from.text_or_none("device"),
                  .frames = from.count_or_1("frames"),
                  .input_bytes = from.number_or("input_bytes", 0)};
  if (from.has("thread_speedup")) {
    const Json& speeds = from.list("thread_speedup");
    if (!Fields::is_numbers(speeds)) from.fail("thread_speedup is no list of numbers");
    profile.thread_speedup = speeds.get<std::vector<double>>();
  }
  for (const Json& value : from.list_or_none("hand_offs"))
    profile.hand_offs.push_back(read_hand_off(value));
  for (const Json& value : from.list("modules"))
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
    throw ProfileError(name + ": is no JSON: " + error.what());
  } catch (const std::length_error& error) {
    throw ProfileError(name + ": " + error.what());
  } catch (const ProfileError& error) {
    throw ProfileError(name + ": " + error.what());
  }
}

}  // namespace millrace::engine::plan
