#include <algorithm>
#include <stdexcept>

#include "stages/layer.h"
#include "stages/layer_files.h"  // CMake writes it: FILE(name) for each layers_name.cpp

namespace millrace::stages {

#define DECLARE(name) std::vector<LayerType> name##_layers();
MILLRACE_LAYER_FILES(DECLARE)
#undef DECLARE

namespace {

/// The values that `key` takes, if `value` is none; otherwise nothing.
std::optional<std::string> refusal(const LayerKey& key, const LayerValue& value) {
  if (const auto* const range = std::get_if<LayerKey::Whole>(&key.takes)) {
    const auto* const whole = std::get_if<std::int64_t>(&value);
    if (whole && *whole >= range->least && *whole <= range->most) return {};
    return "a whole number from " + std::to_string(range->least) + " to " +
           std::to_string(range->most);
  }
  if (const auto* const names = std::get_if<LayerKey::Names>(&key.takes)) {
    const auto* const name = std::get_if<std::string>(&value);
    if (name && std::ranges::count(*names, *name) > 0) return {};
    std::string all;
    for (const std::string& one : *names) all += (all.empty() ? "\"" : ", \"") + one + "\"";
    return "one of " + all;
  }
  return std::holds_alternative<double>(value) ? std::nullopt : std::optional("a number");
}

std::vector<LayerType>& layer_table() {
  static std::vector<LayerType> table = [] {
    std::vector<LayerType> all;
    const auto add = [&](const std::vector<LayerType>& some) {
      all.insert(all.end(), some.begin(), some.end());
    };
#define ADD(name) add(name##_layers());
    MILLRACE_LAYER_FILES(ADD)
#undef ADD
    std::ranges::sort(all, {}, &LayerType::name);
    return all;
  }();
  return table;
}

}  // namespace

std::string keys_text(const LayerType& type) {
  std::string list;
  for (const LayerKey& key : type.keys) list += (list.empty() ? "" : ", ") + key.name;
  return list.empty() ? "none" : list;
}

LayerSpec complete(LayerSpec spec) {
  const LayerType& type = layer_type(spec.type);
  for (const auto& [name, value] : spec.keys) {
    if (std::ranges::count(type.keys, name, &LayerKey::name) == 0)
      throw std::invalid_argument("takes no " + name + " (it takes " + keys_text(type) + ")");
  }
  for (const LayerKey& key : type.keys) {
    const auto given = spec.keys.find(key.name);
    if (given == spec.keys.end()) {
      if (key.required()) throw std::invalid_argument("needs " + key.name);
      spec.keys.emplace(key.name, *key.fallback);
      continue;
    }
    const auto* const whole = std::get_if<std::int64_t>(&given->second);
    if (whole && std::holds_alternative<LayerKey::Number>(key.takes))
      given->second = double(*whole);
    if (const auto wanted = refusal(key, given->second))
      throw std::invalid_argument(key.name + " must be " + *wanted);
  }
  return spec;
}

const std::vector<LayerType>& layer_types() {
  return layer_table();
}

void add_layer_type(LayerType type) {
  auto& all = layer_table();
  const auto at = std::ranges::lower_bound(all, type.name, {}, &LayerType::name);
  if (at != all.end() && at->name == type.name)
    throw std::invalid_argument("layer " + type.name + " is already registered");
  all.insert(at, std::move(type));
}

const LayerType& layer_type(const std::string& name) {
  for (const LayerType& type : layer_types()) {
    if (type.name == name) return type;
  }
  throw std::invalid_argument("unknown type \"" + name + "\"");
}

std::unique_ptr<Layer> make_layer(const LayerSpec& spec, ImageShape& shape,
                                  const ImageShape* joined) {
  const LayerSpec whole = complete(spec);
  if (whole.keys.contains("from") && !joined)
    throw std::invalid_argument("from must name an earlier module, or -1: the sample");
  return layer_type(spec.type).make(whole, shape, joined);
}

}  // namespace millrace::stages
