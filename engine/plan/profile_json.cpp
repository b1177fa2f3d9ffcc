#include "engine/plan/profile_json.h"

#include <nlohmann/json.hpp>  // JSON

#include <algorithm>
#include <initializer_list>
#include <stdexcept>

#include "engine/plan/json_bounds.h"

namespace millrace::engine::plan {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw ProfileError(where + ": " + what);
}

const Json* find(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found == object.end() ? nullptr : &*found;
}

/// A misspelt field that may be left out would go unnoticed.
void require_known(const Json& object, std::initializer_list<const char*> fields,
                   const std::string& where) {
  for (const auto& [name, value] : object.items()) {
    if (std::find(fields.begin(), fields.end(), name) == fields.end())
      fail(where, "unknown field \"" + name + "\"");
  }
}

double number(const Json& object, const char* field, const std::string& where) {
  const Json* value = find(object, field);
  if (!value) fail(where, std::string(field) + " is missing");
  if (!value->is_number()) fail(where, std::string(field) + " is not a number");
  return value->get<double>();
}

double number_or(const Json& object, const char* field, double other, const std::string& where) {
  return find(object, field) ? number(object, field, where) : other;
}

int count_or(const Json& object, const char* field, int other, const std::string& where) {
  const double value = number_or(object, field, other, where);
  if (!(value >= 1 && value <= 1e9) || value != int(value)) {
    fail(where, std::string(field) + " is no count");
  }
  return int(value);
}

std::string text_or(const Json& object, const char* field, const std::string& where) {
  const Json* value = find(object, field);
  if (!value) return "";
  if (!value->is_string()) fail(where, std::string(field) + " is no text");
  return value->get<std::string>();
}

const Json& list(const Json& object, const char* field, const std::string& where) {
  const Json* value = find(object, field);
  if (!value) fail(where, std::string(field) + " is missing");
  if (!value->is_array()) fail(where, std::string(field) + " is no list");
  return *value;
}

/// [median, spread], or the median alone.
Measured measured(const Json& object, const char* field, const std::string& where) {
  const Json* value = find(object, field);
  if (!value) fail(where, std::string(field) + " is missing");
  if (value->is_number()) return {value->get<double>(), 0};
  if (!value->is_array() || value->size() != 2 || !(*value)[0].is_number() ||
      !(*value)[1].is_number()) {
    fail(where, std::string(field) + " is not [median, spread]");
  }
  return {(*value)[0].get<double>(), (*value)[1].get<double>()};
}

/// [ways, forward, input gradient, weight gradient, update] each.
void read_parts(ModuleProfile& module, const Json& all, const std::string& where) {
  for (const Json& one : all) {
    const bool right =
        one.is_array() && one.size() == 5 &&
        std::all_of(one.begin(), one.end(), [](const Json& number) { return number.is_number(); });
    if (!right || one[0].get<double>() < 2 || one[0].get<double>() > 1e4)
      fail(where, "tensor_ms is no list of [parts, ms, ms, ms, ms]");
    module.parts[one[0].get<int>()] = {one[1].get<double>(), one[2].get<double>(),
                                       one[3].get<double>(), one[4].get<double>()};
  }
}

ModuleProfile read_module(const Json& json, std::size_t index, const std::string& file) {
  std::string where = file + ": module " + std::to_string(index);
  if (!json.is_object()) fail(where, "is no object");
  ModuleProfile module;
  module.name = text_or(json, "name", where);
  if (module.name.empty()) fail(where, "name is missing");
  where += " (" + module.name + ")";
  require_known(json,
                {"name", "forward_ms", "input_gradient_ms", "weight_gradient_ms", "update_ms",
                 "activation_bytes", "gradient_bytes", "weight_bytes", "state_bytes", "stash_bytes",
                 "tensor_ways", "tensor_bytes", "tensor_gradient_bytes", "tensor_ms"},
                where);
  module.forward = measured(json, "forward_ms", where);
  module.input_gradient = measured(json, "input_gradient_ms", where);
  module.weight_gradient = measured(json, "weight_gradient_ms", where);
  module.update = measured(json, "update_ms", where);
  module.bytes = {.activation = number(json, "activation_bytes", where),
                  .gradient = number(json, "gradient_bytes", where),
                  .weight = number(json, "weight_bytes", where),
                  .state = number_or(json, "state_bytes", 0, where),
                  .stash = number(json, "stash_bytes", where)};
  module.tensor_ways = count_or(json, "tensor_ways", 1, where);
  module.tensor_bytes = number_or(json, "tensor_bytes", 0, where);
  module.tensor_gradient_bytes =
      number_or(json, "tensor_gradient_bytes", module.tensor_bytes, where);
  if (find(json, "tensor_ms")) read_parts(module, list(json, "tensor_ms", where), where);
  return module;
}

HandOff read_hand_off(const Json& json, const std::string& file) {
  HandOff hand_off;
  if (!json.is_object()) fail(file, "a hand-off is no object");
  hand_off.between = text_or(json, "between", file);
  const std::string where = file + ": hand-off " + hand_off.between;
  require_known(json, {"between", "bytes_ms"}, where);
  for (const Json& point : list(json, "bytes_ms", where)) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_number()) {
      fail(where, "bytes_ms is no list of [bytes, ms]");
    }
    hand_off.points.push_back({point[0].get<double>(), point[1].get<double>()});
  }
  return hand_off;
}

Profile read(const Json& json, const std::string& file) {
  if (!json.is_object() || number_or(json, "millrace_profile", 0, file) != 1) {
    fail(file, "millrace_profile is not 1: no profile, or a later one");
  }
  require_known(json,
                {"millrace_profile", "network", "source", "device", "frames", "input_bytes",
                 "thread_speedup", "hand_offs", "modules"},
                file);
  Profile profile;
  profile.network = text_or(json, "network", file);
  profile.source = text_or(json, "source", file);
  profile.device = text_or(json, "device", file);
  profile.frames = count_or(json, "frames", 1, file);
  profile.input_bytes = number_or(json, "input_bytes", 0, file);
  if (find(json, "thread_speedup")) {
    profile.thread_speedup.clear();
    for (const Json& value : list(json, "thread_speedup", file)) {
      if (!value.is_number()) fail(file, "thread_speedup is no list of numbers");
      profile.thread_speedup.push_back(value.get<double>());
    }
  }
  if (find(json, "hand_offs")) {
    for (const Json& value : list(json, "hand_offs", file)) {
      profile.hand_offs.push_back(read_hand_off(value, file));
    }
  }
  for (const Json& value : list(json, "modules", file)) {
    profile.modules.push_back(read_module(value, profile.modules.size(), file));
  }
  return profile;
}

Json write(const Measured& time) {
  return {time.median, time.spread};
}

Json write(const ModuleProfile& module) {
  Json parts = Json::array();
  for (const auto& [ways, ms] : module.parts)
    parts.push_back({ways, ms.forward, ms.input_gradient, ms.weight_gradient, ms.update});
  return {{"name", module.name},
          {"forward_ms", write(module.forward)},
          {"input_gradient_ms", write(module.input_gradient)},
          {"weight_gradient_ms", write(module.weight_gradient)},
          {"update_ms", write(module.update)},
          {"activation_bytes", module.bytes.activation},
          {"gradient_bytes", module.bytes.gradient},
          {"weight_bytes", module.bytes.weight},
          {"state_bytes", module.bytes.state},
          {"stash_bytes", module.bytes.stash},
          {"tensor_ways", module.tensor_ways},
          {"tensor_bytes", module.tensor_bytes},
          {"tensor_gradient_bytes", module.tensor_gradient_bytes},
          {"tensor_ms", parts}};
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
  text.erase(text.rfind('\n'));  // and the brace behind it
  text += ",\n \"modules\": [";
  for (std::size_t i = 0; i < profile.modules.size(); ++i) {
    text += (i > 0 ? ",\n  " : "\n  ") + write(profile.modules[i]).dump();
  }
  return text + "\n ]\n}\n";
}

Profile profile_from_json(const std::string& text, const std::string& name) {
  Profile profile;
  try {
    const Json json = parse_bounded(text);
    // Parsed again it says where it is wrong.
    profile = read(json.is_discarded() ? Json::parse(text) : json, name);
  } catch (const Json::exception& error) {
    throw ProfileError(name + ": is no JSON: " + error.what());
  } catch (const std::length_error& error) {
    throw ProfileError(name + ": " + error.what());
  }
  try {
    check_profile(profile);
  } catch (const ProfileError& error) {
    throw ProfileError(name + ": " + error.what());
  }
  return profile;
}

}  // namespace millrace::engine::plan
