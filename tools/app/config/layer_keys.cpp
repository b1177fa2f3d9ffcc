// The tables [[model.layer]]: the keys that each type of layer takes.
#include <algorithm>  // find
#include <cmath>      // isfinite
#include <stdexcept>  // bad tables

#include "io/text/nearest_name.h"
#include "stages/model_spec.h"
#include "tools/app/config/key_kinds.h"

namespace millrace::app {
namespace {

/// The key of `field`, if `table` has it.
void read_into(std::optional<std::int64_t>& value, const toml::table& table,
               const stages::LayerField& field) {
  const toml::node* node = table.get(field.name);
  if (!node) return;
  value = node->value_exact<std::int64_t>();
  if (!value || *value < field.least || *value > field.most) {
    throw std::invalid_argument(field.name + " must be a whole number from " +
                                std::to_string(field.least) + " to " + std::to_string(field.most));
  }
}

void read_into(std::optional<double>& value, const toml::table& table,
               const stages::LayerField& field) {
  const toml::node* node = table.get(field.name);
  if (!node) return;
  value = node->value<double>();
  if (!value || !std::isfinite(*value))
    throw std::invalid_argument(field.name + " must be a number");
}

void read_into(std::optional<std::string>& value, const toml::table& table,
               const stages::LayerField& field) {
  const toml::node* node = table.get(field.name);
  if (!node) return;
  value = node->value_exact<std::string>();
  if (!value) throw std::invalid_argument(field.name + " must be text");
}

}  // namespace

stages::LayerSpec read_layer(const toml::table& table) {
  std::vector<std::string_view> keys = {"type"}, types;
  for (const stages::LayerField& field : stages::layer_fields()) keys.push_back(field.name);
  for (const stages::LayerType& type : stages::layer_types()) types.push_back(type.name);
  for (const auto& [key, node] : table) {
    if (std::find(keys.begin(), keys.end(), key.str()) == keys.end()) {
      throw std::invalid_argument("unknown key \"" + std::string(key.str()) +
                                  "\"; the nearest is \"" + io::nearest_name(key.str(), keys) +
                                  "\"");
    }
  }
  stages::LayerSpec layer;
  const toml::node* type = table.get("type");
  if (!type || !type->is_string()) throw std::invalid_argument("needs type = \"...\"");
  layer.type = *type->value_exact<std::string>();
  if (std::find(types.begin(), types.end(), layer.type) == types.end()) {
    std::string known;
    for (const std::string_view one : types)
      known += (known.empty() ? "" : ", ") + std::string(one);
    throw std::invalid_argument("unknown type \"" + layer.type + "\"; known ones: " + known);
  }
  for (const stages::LayerField& field : stages::layer_fields())
    std::visit([&](auto member) { read_into(layer.*member, table, field); }, field.member);
  return layer;
}

std::string layer_toml(const stages::LayerSpec& layer) {
  std::string text = "[[model.layer]]\ntype = " + quoted_text(layer.type) + "\n";
  for (const stages::LayerField& field : stages::layer_fields()) {
    const auto shown = [](const auto& value) -> std::string {
      using T = std::decay_t<decltype(value)>;
      if constexpr (std::is_same_v<T, std::string>)
        return quoted_text(value);
      else if constexpr (std::is_same_v<T, double>)
        return number_text(value);
      else
        return std::to_string(value);
    };
    std::visit(
        [&](auto member) {
          if (layer.*member) text += field.name + " = " + shown(*(layer.*member)) + "\n";
        },
        field.member);
  }
  return text;
}

std::string describe_layers() {
  std::string text =
      "model.layer = []\n    preset \"layers\": what each [[model.layer]] has as its type:\n";
  for (const stages::LayerType& type : stages::layer_types()) {
    text += "    " + type.name + ": " + type.summary + "\n";
    for (const stages::LayerKey& key : type.keys)
      text += "        " + key.name + " = " +
              (key.fallback.empty() ? "(must be given)" : key.fallback) + ": " + key.meaning + "\n";
  }
  return text;
}

}  // namespace millrace::app
