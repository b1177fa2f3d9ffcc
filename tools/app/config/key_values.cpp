// How values of config keys are read and shown.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>
#include <type_traits>

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
std::optional<T> read_as(const toml::node& node, const Range& range) {
  if constexpr (kIsList<T>) {
    const toml::array* const array = node.as_array();
    if (!array) return std::nullopt;
    T list;
    for (const toml::node& item : *array) {
      const auto value = read_as<typename T::value_type>(item, range);
      if (!value) return std::nullopt;
      list.push_back(*value);
    }
    return list;
  } else if constexpr (std::is_same_v<T, std::string>) {
    const auto text = node.value_exact<std::string>();
    const bool good = text && (range.choices.empty() || contains(range.choices, *text) ||
                               (range.or_if && range.or_if(*text)));
    return good ? text : std::nullopt;
  } else if constexpr (std::is_same_v<T, bool>) {
    return node.value_exact<bool>();
  } else {
    using Read = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
    const auto number = std::is_integral_v<T> ? node.value_exact<Read>()
                        : node.is_number()    ? node.value<Read>()
                                              : std::nullopt;
    if (!number || !(double(*number) >= range.least && double(*number) <= range.most))
      return std::nullopt;
    return T(*number);
  }
}

template <class T>
std::string list_text(const std::vector<T>& list) {
  std::string text = "[";
  for (T item : list) text += (text.size() > 1 ? ", " : "") + value_text(&item);
  return text + "]";
}

Range number(double least, double most) {
  return {.least = least, .most = most};
}

/// A loss by its name, or a table of kind, weight, label_smoothing and channels.
bool read_term(const toml::node& node, const Range& names, stages::LossTerm& term) {
  if (read_value(node, names, &term.kind)) return true;
  const toml::table* const table = node.as_table();
  if (!table || !table->contains("kind")) return false;
  for (const auto& [key, value] : *table) {
    const bool read = key == "kind"     ? read_value(value, names, &term.kind)
                      : key == "weight" ? read_value(value, number(0, 1e6), &term.weight)
                      : key == "label_smoothing"
                          ? read_value(value, number(0, 1), &term.label_smoothing)
                          : key == "channels" &&
                                read_value(value, number(0, 65536), &term.channels) &&
                                term.channels.size() == 2 && term.channels[1] > 0;
    if (!read) return false;
  }
  return term.label_smoothing == 0 || term.kind == "cross-entropy";
}

std::string term_text(const stages::LossTerm& term) {
  if (stages::LossSpec{term.kind}.terms[0] == term) return value_text(term.kind);
  std::string text = "{kind = " + value_text(term.kind) + ", weight = " + value_text(term.weight);
  if (term.label_smoothing > 0) text += ", label_smoothing = " + value_text(term.label_smoothing);
  if (!term.channels.empty()) text += ", channels = " + list_text(term.channels);
  return text + "}";
}

bool read_loss(const toml::node& node, const Range& range, Place place) {
  stages::LossSpec loss;
  const toml::array* const list = node.as_array();
  if (list) loss.terms.assign(list->size(), {});
  for (std::size_t i = 0; i < loss.terms.size(); ++i) {
    if (!read_term(list ? (*list)[i] : node, range, loss.terms[i])) return false;
  }
  *std::get<stages::LossSpec*>(place) = loss;
  return !loss.terms.empty();
}

std::string show_loss(Place place) {
  const auto& terms = std::get<stages::LossSpec*>(place)->terms;
  if (terms.size() == 1) return term_text(terms[0]);
  std::string text = "[";
  for (const stages::LossTerm& term : terms)
    text += (text.size() > 1 ? ", " : "") + term_text(term);
  return text + "]";
}

bool read_devices(const toml::node& node, const Range& range, Place place) {
  auto& devices = *std::get<std::vector<std::string>*>(place);
  if (const auto one = node.value_exact<std::string>()) {
    devices = {*one};
    return contains({"auto", "cpu", "cuda"}, *one);
  }
  return read_value(node, range, place) && !devices.empty() &&
         std::all_of(devices.begin(), devices.end(),
                     [](const std::string& name) { return name.find(':') != name.npos; });
}

std::string show_devices(Place place) {
  const auto& devices = *std::get<std::vector<std::string>*>(place);
  return devices.size() == 1 && devices[0].find(':') == std::string::npos ? value_text(devices[0])
                                                                          : value_text(place);
}

/// {0} stands for "auto".
bool read_threads(const toml::node& node, const Range& range, Place place) {
  auto& threads = *std::get<std::vector<int>*>(place);
  threads = {0};
  return node.value_exact<std::string>() == "auto" || read_value(node, range, &threads[0]) ||
         (read_value(node, range, place) && !threads.empty());
}

std::string show_threads(Place place) {
  const auto& threads = *std::get<std::vector<int>*>(place);
  if (threads == std::vector<int>{0}) return value_text("auto");
  return threads.size() == 1 ? std::to_string(threads[0]) : value_text(place);
}

/// Below 0 stands for "auto".
bool read_share(const toml::node& node, const Range& range, Place place) {
  *std::get<double*>(place) = -1;
  return node.value_exact<std::string>() == "auto" || read_value(node, range, place);
}

std::string show_share(Place place) {
  return *std::get<double*>(place) < 0 ? value_text("auto") : value_text(place);
}

bool read_memory_format(const toml::node& node, const Range& range, Place place) {
  std::string format;
  const bool read = read_value(node, range, &format);
  *std::get<bool*>(place) = format == "channels_last";
  return read;
}

std::string show_memory_format(Place place) {
  return value_text(*std::get<bool*>(place) ? "channels_last" : "contiguous");
}

}  // namespace

bool read_value(const toml::node& node, const Range& range, Place place) {
  return std::visit(
      [&](auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<T, stages::LossSpec>) {
          return false;  // its range reads it
        } else {
          auto read = read_as<T>(node, range);
          if (read) *value = std::move(*read);
          return read.has_value();
        }
      },
      place);
}

std::string value_text(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

std::string value_text(double value) {
  const bool plain = value == 0 || (std::abs(value) >= 1e-4 && std::abs(value) < 1e15);
  char digits[32];
  char* const end = std::to_chars(digits, digits + sizeof digits, value,
                                  plain ? std::chars_format::fixed : std::chars_format::scientific)
                        .ptr;
  std::string text(digits, end);
  return plain && text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string value_text(Place place) {
  return std::visit(
      [](auto* value) -> std::string {
        using T = std::remove_pointer_t<decltype(value)>;
        if constexpr (kIsList<T>)
          return list_text(*value);
        else if constexpr (std::is_same_v<T, bool>)
          return *value ? "true" : "false";
        else if constexpr (std::is_same_v<T, stages::LossSpec>)
          return show_loss(value);
        else if constexpr (std::is_integral_v<T>)
          return std::to_string(*value);
        else
          return value_text(*value);
      },
      place);
}

bool ConfigKey::set(Config& config, const toml::node& node) const {
  const Place place = at(config);
  return (range.read ? range.read : read_value)(node, range, place) &&
         (!range.fits || range.fits(place));
}

std::string ConfigKey::show(const Config& config) const {
  const Place place = at(const_cast<Config&>(config));  // which is not changed
  return range.show ? range.show(place) : value_text(place);
}

Range loss_range() {
  Range range;
  for (const stages::LossType& type : stages::loss_types()) range.choices.push_back(type.name);
  range.read = read_loss;
  range.show = show_loss;
  return range;
}

Range devices_range() {
  return {.text = "\"auto\", \"cpu\", \"cuda\" or a list as [\"cpu:0\", \"cuda:0\"]",
          .read = read_devices,
          .show = show_devices};
}

Range threads_range() {
  return {.text = "a whole number from 1 to 1024, a list of them, or \"auto\"",
          .least = 1,
          .most = 1024,
          .read = read_threads,
          .show = show_threads};
}

Range share_range() {
  return {.text = "\"auto\" or a number from 0 to 0.99",
          .least = 0,
          .most = 0.99,
          .read = read_share,
          .show = show_share};
}

Range memory_format_range() {
  return {.choices = {"contiguous", "channels_last"},
          .read = read_memory_format,
          .show = show_memory_format};
}

}  // namespace millrace::app
