// Plug-ins as they are loaded.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace millrace::app {

/// A plug-in that can't be used: "FILE: what is wrong".
struct PluginError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Loads the shared object and adds what it has to the tables; once, however often it is named. Its
/// code runs in this process, so it must be trusted. Before any other thread uses the tables.
/// Throws PluginError.
void load_plugin(const std::string& path);

/// How many are loaded: whoever keeps something made of the tables makes it anew when this grows.
int plugins_loaded();

struct SinkType;
/// What plug-ins have added.
const std::vector<SinkType>& sink_types();

}  // namespace millrace::app
