// The table of config keys, for config.cpp alone.
#pragma once

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
  std::string text;                  ///< "a whole number from 0 to 16384"
  double least = 0, most = 0;        ///< of a number
  std::vector<std::string> choices;  ///< of a text; empty: any
  /// Tells texts beside the choices; null: there are none.
  bool (*or_if)(const std::string&) = nullptr;
  /// Checks a value that was read; null: nothing is left to check.
  bool (*fits)(Place) = nullptr;
  /// Read and show values of another form than the member has; null: by its type.
  bool (*read)(const toml::node&, const Range&, Place) = nullptr;
  std::string (*show)(Place) = nullptr;
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
};

/// In the order in which they are shown.
const std::vector<ConfigKey>& config_keys();

/// Reads a value of `place`'s type. Returns false if it is of another type or not in `range`.
bool read_value(const toml::node& node, const Range& range, Place place);
/// A value as TOML.
std::string value_text(Place place);
/// The fewest digits that read as `value` again: 0.9, 1000.0, 1e-08.
std::string value_text(double value);

/// Ranges whose values have a form of their own.
Range loss_range();
Range devices_range();
Range threads_range();
Range share_range();
Range memory_format_range();

/// Reads one [[model.layer]] table. Throws std::invalid_argument saying what is wrong.
stages::LayerSpec read_layer(const toml::table& table);

/// The same as TOML.
std::string layer_toml(const stages::LayerSpec& layer);

}  // namespace millrace::app
