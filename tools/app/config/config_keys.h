// The table of config keys: name, range, meaning, how to read and show each. config.cpp's alone.
#pragma once

#include <toml++/toml.h>  // values

#include <functional>  // accessors
#include <string>      // names
#include <vector>      // the table

#include "tools/app/config/config.h"

namespace millrace::app {

struct ConfigKey {
  std::string path;   ///< "source.width"
  std::string range;  ///< "a whole number from 0 to 16384"
  std::string meaning;
  /// Stores the value, or returns false if it is not in the range.
  std::function<bool(Config&, const toml::node&)> set;
  std::function<std::string(const Config&)> show;  ///< as TOML
};

const std::vector<ConfigKey>& config_keys();

/// Reads one [[model.layer]] table. Throws std::invalid_argument saying what is wrong.
stages::LayerSpec read_layer(const toml::table& table);

/// The same as TOML.
std::string layer_toml(const stages::LayerSpec& layer);

}  // namespace millrace::app
