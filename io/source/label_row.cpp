#include "io/source/label_row.h"

#include <algorithm>  // none_of
#include <cmath>      // whole
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace millrace::io {
namespace {

constexpr double kLast = 9e15;  // whole in a double
constexpr std::size_t kLongest = 4096;

bool plain(const std::string& name) {
  return std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < ' '; });
}

}  // namespace

LabelRow parse_label(std::string_view text) {
  // Without exceptions: what is no JSON is "discarded", and no object.
  const auto json = nlohmann::json::parse(text.substr(0, kLongest), nullptr, false);
  const auto fail = [] {
    throw std::invalid_argument(
        "a label is JSON as {\"frame\": 17, \"class\": \"day\"}; \"time\" are seconds");
  };
  if (!json.is_object() || !json.contains("class")) fail();
  LabelRow row;
  for (const auto& [key, value] : json.items()) {
    if (key == "class") {
      if (value.is_number_integer())
        row.name = value.dump();
      else if (value.is_string() && value != "" && plain(value.get<std::string>()))
        row.name = value.get<std::string>();
      else if (!value.is_null())
        fail();
      continue;
    }
    std::optional<double>* const place = key == "frame"  ? &row.frame
                                         : key == "time" ? &row.time
                                                         : nullptr;
    if (!place || !value.is_number()) fail();
    const double number = value.get<double>();
    if (!(number >= 0 && number <= kLast)) fail();
    if (place == &row.frame && number != std::floor(number)) fail();
    *place = number;
  }
  if (row.frame && row.time) fail();
  return row;
}

}  // namespace millrace::io
