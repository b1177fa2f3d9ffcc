#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <type_traits>

#include "io/files/whole_file.h"
#include "io/text/nearest_name.h"
#include "stages/loss.h"
#include "tools/app/config/config_keys.h"

namespace millrace::app {
namespace {

template <class T>
constexpr bool kIsList = false;
template <class T>
constexpr bool kIsList<std::vector<T>> = true;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <class T>
std::optional<T> read_as(const toml::node& node, const Range& range);

/// Stores the node's value; false if it has another type or is not in `range`.
template <class T>
bool read_value(const toml::node& node, const Range& range, T* value) {
  auto read = read_as<T>(node, range);
  if (read) *value = std::move(*read);
  return read.has_value();
}

/// Throws unless `table` has only these keys.
void require_known(const toml::table& table, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : table) {
    if (std::ranges::find(known, key.str()) == known.end())
      throw std::invalid_argument("unknown key " + std::string(key.str()) + "; the nearest is " +
                                  io::nearest_name(key.str(), std::vector(known)));
  }
}

/// A loss by name, or a table of kind, weight, label_smoothing and channels.
bool read_term(const toml::node& node, const Range& names, stages::LossTerm& term) {
  if (read_value(node, names, &term.kind)) return true;
  const toml::table* const table = node.as_table();
  if (!table || !table->contains("kind")) return false;
  require_known(*table, {"kind", "weight", "label_smoothing", "channels"});
  for (const auto& [key, value] : *table) {
    const auto read = [&](auto* number, double most) {
      return read_value(value, {.most = most}, number);
    };
    const bool good =
        key == "kind"     ? read_value(value, names, &term.kind)
        : key == "weight" ? read(&term.weight, 1e6)
        : key == "label_smoothing"
            ? read(&term.label_smoothing, 1)
            : read(&term.channels, 65536) && term.channels.size() == 2 && term.channels[1] > 0;
    if (!good) return false;
  }
  return term.label_smoothing == 0 || term.kind == "cross-entropy";
}

std::optional<stages::LossSpec> read_loss(const toml::node& node, const Range& range) {
  stages::LossSpec loss;
  const toml::array* const list = node.as_array();
  if (list) loss.terms.assign(list->size(), {});
  for (std::size_t i = 0; i < loss.terms.size(); ++i)
    if (!read_term(list ? (*list)[i] : node, range, loss.terms[i])) return std::nullopt;
  return loss.terms.empty() ? std::nullopt : std::optional(loss);
}

/// A polygon, or a table of points, name and sensitivity.
std::optional<Zone> read_zone(const toml::node& node) {
  Zone zone;
  const toml::node* points = &node;
  if (const toml::table* const table = node.as_table()) {
    require_known(*table, {"points", "name", "sensitivity"});
    points = table->get("points");
    const toml::node *const name = table->get("name"), *const share = table->get("sensitivity");
    if ((name && !read_value(*name, {}, &zone.name)) ||
        (share && !read_value(*share, {.least = 0.01, .most = 100}, &zone.sensitivity)))
      return std::nullopt;
  }
  const toml::array* const list = points ? points->as_array() : nullptr;
  for (std::size_t i = 0; list && i < list->size(); ++i) {
    std::vector<double> point;
    if (!read_value((*list)[i], {.least = -1e6, .most = 1e6}, &point) || point.size() != 2)
      return std::nullopt;
    zone.points.push_back({point[0], point[1]});
  }
  return list ? std::optional(zone) : std::nullopt;
}

template <class T>
std::optional<T> read_as(const toml::node& node, const Range& range) {
  if constexpr (std::is_same_v<T, Zone>) {
    return read_zone(node);
  } else if constexpr (kIsList<T>) {
    const toml::array* const array = node.as_array();
    if (!array && !range.single) return std::nullopt;
    T list;
    for (std::size_t i = 0; i < (array ? array->size() : 1); ++i) {
      const auto value = read_as<typename T::value_type>(array ? (*array)[i] : node, range);
      if (!value) return std::nullopt;
      list.push_back(*value);
    }
    return list;
  } else if constexpr (std::is_same_v<T, stages::LossSpec>) {
    return read_loss(node, range);
  } else if constexpr (std::is_same_v<T, std::string>) {
    const auto text = node.value_exact<std::string>();
    const bool good = text && (range.choices.empty() || contains(range.choices, *text) ||
                               (range.or_if && range.or_if(*text)));
    return good ? std::optional(io::at_home(*text)) : std::nullopt;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (range.choices.empty()) return node.value_exact<bool>();
    const auto name = node.value_exact<std::string>();
    return name && contains(range.choices, *name) ? std::optional(*name == range.choices[1])
                                                  : std::nullopt;
  } else {
    if (range.automatic && node.value_exact<std::string>() == "auto") return T(*range.automatic);
    using Read = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
    const auto number = std::is_integral_v<T> ? node.value_exact<Read>()
                        : node.is_number()    ? node.value<Read>()
                                              : std::nullopt;
    if (!number || !(double(*number) >= range.least && double(*number) <= range.most))
      return std::nullopt;
    return T(*number);
  }
}

/// The fewest digits that read back as `value`: 0.9, 1000.0, 1e-08.
std::string number_text(double value) {
  const bool plain = value == 0 || (std::abs(value) >= 1e-4 && std::abs(value) < 1e15);
  char digits[32];
  char* const end = std::to_chars(digits, digits + sizeof digits, value,
                                  plain ? std::chars_format::fixed : std::chars_format::scientific)
                        .ptr;
  std::string text(digits, end);
  return plain && text.find('.') == std::string::npos ? text + ".0" : text;
}

/// `value` as TOML; `range` may name values.
template <class T>
std::string text_of(const T& value, const Range& range);

template <class T>
std::string list_text(const std::vector<T>& list, const Range& range) {
  std::string text = "[";
  for (const T& item : list) text += (text.size() > 1 ? ", " : "") + text_of(item, range);
  return text + "]";
}

std::string zone_text(const Zone& zone) {
  std::string points;
  for (const auto& [x, y] : zone.points)
    points += (points.empty() ? "[" : ", ") + list_text(std::vector{x, y}, {});
  return "{points = " + points + "], name = " + value_text(zone.name) +
         ", sensitivity = " + number_text(zone.sensitivity) + "}";
}

std::string term_text(const stages::LossTerm& term) {
  if (stages::LossSpec{term.kind}.terms[0] == term) return value_text(term.kind);
  std::string text = "{kind = " + value_text(term.kind) + ", weight = " + number_text(term.weight);
  if (term.label_smoothing > 0) text += ", label_smoothing = " + number_text(term.label_smoothing);
  if (!term.channels.empty()) text += ", channels = " + list_text(term.channels, {});
  return text + "}";
}

template <class T>
std::string text_of(const T& value, const Range& range) {
  if constexpr (kIsList<T>) {
    return range.single && value.size() == 1 ? text_of(value[0], range) : list_text(value, range);
  } else if constexpr (std::is_same_v<T, Zone>) {
    return zone_text(value);
  } else if constexpr (std::is_same_v<T, stages::LossSpec>) {
    return text_of(value.terms, {.single = true});
  } else if constexpr (std::is_same_v<T, stages::LossTerm>) {
    return term_text(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value_text(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return range.choices.empty() ? (value ? "true" : "false") : value_text(range.choices[value]);
  } else {
    if (range.automatic && value == T(*range.automatic)) return value_text("auto");
    if constexpr (std::is_integral_v<T>) return std::to_string(value);
    return number_text(double(value));
  }
}

template <class T>
std::string range_text(const Range& range) {
  if (!range.text.empty()) return range.text;
  if (!range.choices.empty()) return choices_text(range.choices);
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::string>) return "text";
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return "a list of texts";
  if constexpr (std::is_same_v<T, double>)
    return "a number from " + number_text(range.least) + " to " + number_text(range.most);
  return (kIsList<T> ? "a list of whole numbers from " : "a whole number from ") +
         std::to_string(std::int64_t(range.least)) + " to " +
         std::to_string(std::int64_t(range.most));
}

/// Nothing if `value` is neither a number nor text.
std::optional<stages::LayerValue> layer_value(const toml::node& node) {
  if (const auto whole = node.value_exact<std::int64_t>()) return *whole;
  if (const auto number = node.value_exact<double>()) return *number;
  if (const auto text = node.value_exact<std::string>()) return *text;
  return {};
}

}  // namespace

std::string value_text(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

std::string choices_text(const std::vector<std::string>& choices) {
  std::string text = "one of";
  for (const std::string& name : choices)
    text += (name == choices.front() ? " " : ", ") + value_text(name);
  return text;
}

bool ConfigKey::set(Config& config, const toml::node& node) const {
  const Place place = at(config);
  return std::visit([&](auto* value) { return read_value(node, range, value); }, place) &&
         (!range.fits || range.fits(place));
}

// at() does not change the config here.
std::string ConfigKey::show(const Config& config) const {
  return std::visit([&](const auto* value) { return text_of(*value, range); },
                    at(const_cast<Config&>(config)));
}

std::string ConfigKey::may_hold(const Config& config) const {
  return std::visit([&]<class T>(T*) { return range_text<T>(range); },
                    at(const_cast<Config&>(config)));
}

stages::LayerSpec read_layer(const toml::table& table) {
  const toml::node* const named = table.get("type");
  if (!named || !named->is_string()) throw std::invalid_argument("needs type = \"...\"");
  stages::LayerSpec layer{*named->value_exact<std::string>()};
  const auto& types = stages::layer_types();
  const auto type = std::ranges::find(types, layer.type, &stages::LayerType::name);
  if (type == types.end()) {
    std::string known;
    for (const stages::LayerType& one : types) known += (known.empty() ? "" : ", ") + one.name;
    throw std::invalid_argument("unknown type \"" + layer.type + "\"; known ones: " + known);
  }
  std::vector<std::string_view> keys = {"type"};
  for (const stages::LayerKey& key : type->keys) keys.push_back(key.name);
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (name == "type") continue;
    if (std::ranges::count(keys, name) == 0)
      throw std::invalid_argument("takes no " + name + " (it takes " + keys_text(*type) +
                                  "); the nearest is \"" + io::nearest_name(name, keys) + "\"");
    const auto value = layer_value(node);
    if (!value) throw std::invalid_argument(name + " must be a number or a text");
    layer.keys.emplace(name, *value);
  }
  complete(layer);  // or throws what is wrong
  return layer;
}

std::string layer_toml(const stages::LayerSpec& layer) {
  std::string text = "[[model.layer]]\ntype = " + value_text(layer.type) + "\n";
  for (const auto& [key, value] : layer.keys)
    text += key + " = " + std::visit([](const auto& of) { return text_of(of, {}); }, value) + "\n";
  return text;
}

std::string describe_layers() {
  std::string text =
      "model.layer = []\n    preset \"layers\": what each [[model.layer]] has as its type:\n";
  for (const stages::LayerType& type : stages::layer_types()) {
    text += "    " + type.name + ": " + type.summary + "\n";
    for (const stages::LayerKey& key : type.keys)
      text += "        " + key.name + " = " + key.fallback_text() + ": " + key.meaning + "\n";
  }
  return text;
}

}  // namespace millrace::app
