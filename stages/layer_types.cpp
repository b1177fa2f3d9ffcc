#include <algorithm>
#include <stdexcept>

#include "stages/layer.h"
#include "stages/layer_files.h"  // CMake writes it: FILE(name) for each layers_name.cpp

namespace millrace::stages {

#define DECLARE(name) std::vector<LayerType> name##_layers();
MILLRACE_LAYER_FILES(DECLARE)
#undef DECLARE

namespace {

bool is_given(const LayerSpec& spec, const std::string& key) {
  for (const LayerField& field : layer_fields()) {
    if (field.name == key)
      return std::visit([&](auto member) { return (spec.*member).has_value(); }, field.member);
  }
  return false;
}

void require_keys(const LayerSpec& spec, const LayerType& type) {
  std::string list;
  for (const LayerKey& key : type.keys) list += (list.empty() ? "" : ", ") + key.name;
  for (const LayerField& field : layer_fields()) {
    const bool taken = std::any_of(type.keys.begin(), type.keys.end(),
                                   [&](const LayerKey& key) { return key.name == field.name; });
    if (taken || !is_given(spec, field.name)) continue;
    throw std::invalid_argument("takes no " + field.name + " (it takes " +
                                (list.empty() ? "none" : list) + ")");
  }
  for (auto key = type.keys.rbegin(); key != type.keys.rend(); ++key) {
    if (key->fallback.empty() && !is_given(spec, key->name))
      throw std::invalid_argument("needs " + key->name);
  }
}

bool by_name(const LayerType& a, const LayerType& b) {
  return a.name < b.name;
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
    std::sort(all.begin(), all.end(), by_name);
    return all;
  }();
  return table;
}

}  // namespace

const std::vector<LayerField>& layer_fields() {
  static const std::vector<LayerField> table = {{"out", &LayerSpec::out, 1, 65536},
                                                {"kernel", &LayerSpec::kernel, 1, 63},
                                                {"stride", &LayerSpec::stride, 1, 64},
                                                {"groups", &LayerSpec::groups, 1, 65536},
                                                {"factor", &LayerSpec::factor, 1, 64},
                                                {"slope", &LayerSpec::slope},
                                                {"from", &LayerSpec::from, -1, 65536},
                                                {"kind", &LayerSpec::kind},
                                                {"init", &LayerSpec::init}};
  return table;
}

const std::vector<LayerType>& layer_types() {
  return layer_table();
}

void add_layer_type(LayerType type) {
  const auto& fields = layer_fields();
  for (const LayerKey& key : type.keys) {
    const bool known = std::any_of(fields.begin(), fields.end(),
                                   [&](const LayerField& field) { return field.name == key.name; });
    if (!known)
      throw std::invalid_argument("layer " + type.name + ": no layer can have a key " + key.name);
  }
  auto& all = layer_table();
  const auto at = std::lower_bound(all.begin(), all.end(), type, by_name);
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
  const LayerType& type = layer_type(spec.type);
  require_keys(spec, type);
  if (spec.from && !joined)
    throw std::invalid_argument("from must name an earlier module, or -1: the sample");
  return type.make(spec, shape, joined);
}

}  // namespace millrace::stages
