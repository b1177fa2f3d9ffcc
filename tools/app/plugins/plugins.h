#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace millrace::app {

/// A plug-in that can't be used: "FILE: what is wrong".
struct PluginError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Loads the shared object, at most once, and adds its entries to the tables. Its code runs in this
/// process, so it must be trusted. Call it before other threads use the tables. Throws PluginError.
void load_plugin(const std::string& path);

/// Anything built from the tables must be rebuilt when this grows.
int plugins_loaded();

struct SinkType;
const std::vector<SinkType>& sink_types();

}  // namespace millrace::app
