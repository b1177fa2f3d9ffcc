// The table of config keys, for config.cpp alone.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <toml++/toml.h>

#include "tools/app/config/config.h"

namespace millrace::app {

/// The member of a Config that a key sets.
using Place = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*,
                           std::vector<int>*, std::vector<std::string>*, stages::LossSpec*>;

/// What a key may hold. Lists: what each element may hold.
struct Range {
  double least = 0, most = 0;        ///< of a number
  std::vector<std::string> choices;  ///< of a text; of a flag, its names for false and true
  std::string text;                  ///< in words; "": as its type and the above say
  bool single = false;               ///< a list of one may be given as its element
  std::optional<double> automatic;   ///< the number that "auto" stands for
  /// Tells texts beside the choices; null: there are none.
  bool (*or_if)(const std::string&) = nullptr;
  /// Checks a value that was read; null: nothing is left to check.
  bool (*fits)(Place) = nullptr;
};

/// A key: an entry of the table.
struct ConfigKey {
  std::string path;  ///< "source.width"
  Range range;
  std::string meaning;
  Place (*at)(Config&);

  /// Stores the value, or returns false if it is not in the range.
  bool set(Config& config, const toml::node& node) const;
  /// The value as TOML.
  std::string show(const Config& config) const;
  /// "a whole number from 0 to 16384".
  std::string may_hold(const Config& config) const;
};

/// In the order in which they are shown.
const std::vector<ConfigKey>& config_keys();

/// Reads a value of `place`'s type. Returns false if it is of another type or not in `range`.
bool read_value(const toml::node& node, const Range& range, Place place);
/// A value as TOML, as `range` has it read.
std::string value_text(Place place, const Range& range = {});
/// The fewest digits that read as `value` again: 0.9, 1000.0, 1e-08.
std::string value_text(double value);
/// `one of "a", "b"`.
std::string choices_text(const std::vector<std::string>& choices);
/// What `place` may hold by `range`, in words.
std::string range_text(const Range& range, Place place);

/// Reads one [[model.layer]] table. Throws std::invalid_argument saying what is wrong.
stages::LayerSpec read_layer(const toml::table& table);

/// The same as TOML.
std::string layer_toml(const stages::LayerSpec& layer);

}  // namespace millrace::app
