// The tables [[model.layer]]: the keys that each type of layer takes.
#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>

#include "io/text/nearest_name.h"
#include "stages/model_spec.h"
#include "tools/app/config/config_keys.h"

namespace millrace::app {
namespace {

/// Reads the key of `field`, if `table` has it.
template <class T>
void read_into(std::optional<T>& value, const toml::table& table, const stages::LayerField& field) {
  const toml::node* const node = table.get(field.name);
  if (!node) return;
  const double any = std::numeric_limits<double>::max();
  Range range{.least = -any, .most = any};
  if (std::is_integral_v<T>) range = {.least = double(field.least), .most = double(field.most)};
  if (std::is_floating_point_v<T>) range.text = "a number";
  if (!read_value(*node, range, &value.emplace()))
    throw std::invalid_argument(field.name + " must be " + range_text(range, &*value));
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
  std::string text = "[[model.layer]]\ntype = " + value_text(layer.type) + "\n";
  for (const stages::LayerField& field : stages::layer_fields()) {
    std::visit(
        [&](auto member) {
          auto value = layer.*member;
          if (value) text += field.name + " = " + value_text(&*value) + "\n";
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
