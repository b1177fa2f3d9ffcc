#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <toml++/toml.h>

#include "tools/app/config/config.h"

namespace millrace::app {

using Place = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                           std::vector<int>*, std::vector<std::string>*, stages::LossSpec*,
                           std::vector<Zone>*>;

/// The values that a key, or each element of a list, may have.
struct Range {
  double least = 0, most = 0;        ///< of a number
  std::vector<std::string> choices;  ///< of a text; of a flag: its names for false and true
  std::string text;                  ///< description; "": derived from the type and the above
  bool single = false;               ///< a list of one may be written as its element
  std::optional<double> automatic;   ///< the number for "auto"
  /// Accepts texts besides the choices; may be null.
  bool (*or_if)(const std::string&) = nullptr;
  /// Further check of a value; may be null.
  bool (*fits)(Place) = nullptr;
};

struct ConfigKey {
  std::string path;  ///< "source.width"
  Range range;
  std::string meaning;
  Place (*at)(Config&);

  /// Stores the value; false if it is out of range.
  bool set(Config& config, const toml::node& node) const;
  std::string show(const Config& config) const;
  std::string may_hold(const Config& config) const;
};

const std::vector<ConfigKey>& config_keys();

/// `one of "a", "b"`.
std::string choices_text(const std::vector<std::string>& choices);

/// Reads one [[model.layer]] table. Throws std::invalid_argument.
stages::LayerSpec read_layer(const toml::table& table);

std::string layer_toml(const stages::LayerSpec& layer);

}  // namespace millrace::app
