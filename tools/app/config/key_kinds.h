// How a key's value is read and shown, by kind: text, choice, number, flag, list.
#pragma once

#include <algorithm>    // find
#include <charconv>     // fewest digits
#include <cmath>        // abs
#include <optional>     // what is of another kind
#include <sstream>      // quotes
#include <type_traits>  // what a list holds

#include "tools/app/config/config_keys.h"

namespace millrace::app {

inline std::string quoted_text(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

/// The fewest digits that read as `value` again: 0.9, 1000.0, 1e-08.
inline std::string number_text(double value) {
  const bool plain = value == 0 || (std::abs(value) >= 1e-4 && std::abs(value) < 1e15);
  char digits[32];
  char* const end = std::to_chars(digits, digits + sizeof digits, value,
                                  plain ? std::chars_format::fixed : std::chars_format::scientific)
                        .ptr;
  std::string text(digits, end);
  return plain && text.find('.') == std::string::npos ? text + ".0" : text;
}

template <class Access>
ConfigKey text(std::string path, std::string meaning, Access access) {
  return {std::move(path), "text", std::move(meaning),
          [=](Config& c, const toml::node& n) {
            const auto value = n.value_exact<std::string>();
            if (value) access(c) = *value;
            return value.has_value();
          },
          [=](const Config& c) { return quoted_text(access(const_cast<Config&>(c))); }};
}

template <class Access>
ConfigKey choice(std::string path, std::vector<std::string> names, std::string meaning,
                 Access access) {
  std::string range = "one of";
  for (const std::string& name : names)
    range += (name == names.front() ? " " : ", ") + quoted_text(name);
  return {std::move(path), range, std::move(meaning),
          [=](Config& c, const toml::node& n) {
            const auto value = n.value_exact<std::string>();
            if (!value || std::find(names.begin(), names.end(), *value) == names.end())
              return false;
            access(c) = *value;
            return true;
          },
          [=](const Config& c) { return quoted_text(access(const_cast<Config&>(c))); }};
}

template <class Access>
ConfigKey whole(std::string path, std::int64_t least, std::int64_t most, std::string meaning,
                Access access) {
  return {std::move(path),
          "a whole number from " + std::to_string(least) + " to " + std::to_string(most),
          std::move(meaning),
          [=](Config& c, const toml::node& n) {
            const auto value = n.value_exact<std::int64_t>();
            if (!value || *value < least || *value > most) return false;
            access(c) = std::remove_reference_t<decltype(access(c))>(*value);
            return true;
          },
          [=](const Config& c) { return std::to_string(access(const_cast<Config&>(c))); }};
}

template <class Access>
ConfigKey real(std::string path, double least, double most, std::string meaning, Access access) {
  return {std::move(path), "a number from " + number_text(least) + " to " + number_text(most),
          std::move(meaning),
          [=](Config& c, const toml::node& n) {
            const auto value = n.is_boolean() ? std::nullopt : n.value<double>();
            if (!value || !(*value >= least && *value <= most)) return false;
            access(c) = *value;
            return true;
          },
          [=](const Config& c) { return number_text(access(const_cast<Config&>(c))); }};
}

template <class Access>
ConfigKey flag(std::string path, std::string meaning, Access access) {
  return {std::move(path), "true or false", std::move(meaning),
          [=](Config& c, const toml::node& n) {
            const auto value = n.value_exact<bool>();
            if (value) access(c) = *value;
            return value.has_value();
          },
          [=](const Config& c) {
            return std::string(access(const_cast<Config&>(c)) ? "true" : "false");
          }};
}

/// Every element read by `element`; false if one can't be.
template <class T, class Accept>
bool read_list(const toml::node& node, std::vector<T>& list, Accept accept) {
  const toml::array* array = node.as_array();
  if (!array) return false;
  std::vector<T> read;
  for (const toml::node& item : *array) {
    const auto value =
        item.value_exact<std::conditional_t<std::is_integral_v<T>, std::int64_t, T>>();
    if (!value || !accept(*value)) return false;
    read.push_back(T(*value));
  }
  list = std::move(read);
  return true;
}

template <class T, class Show>
std::string list_text(const std::vector<T>& list, Show show) {
  std::string text = "[";
  for (const T& item : list) text += (text.size() > 1 ? ", " : "") + show(item);
  return text + "]";
}

template <class Access>
ConfigKey texts(std::string path, std::string meaning, Access access) {
  return {std::move(path), "a list of texts", std::move(meaning),
          [=](Config& c, const toml::node& n) {
            return read_list(n, access(c), [](const std::string&) { return true; });
          },
          [=](const Config& c) { return list_text(access(const_cast<Config&>(c)), quoted_text); }};
}

}  // namespace millrace::app
