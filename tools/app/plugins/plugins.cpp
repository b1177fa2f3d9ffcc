#include "tools/app/plugins/plugins.h"

#include <algorithm>

#include <dlfcn.h>

#include "io/source/source_kinds.h"
#include "stages/loss.h"
#include "stages/model_spec.h"
#include "tools/app/plugins/plugin.h"

namespace millrace::app {
namespace {

std::vector<void*> loaded;
std::vector<SinkType> sinks;

template <class Function>
Function symbol(void* object, const char* name, const std::string& path) {
  void* const found = dlsym(object, name);
  if (!found) throw PluginError(path + ": not a Millrace plug-in: MILLRACE_PLUGIN is missing");
  return reinterpret_cast<Function>(found);
}

/// Runs before any other code of the plug-in.
void require_abi(void* object, const std::string& path) {
  char theirs[160] = {};
  symbol<void (*)(char*, std::size_t)>(object, "millrace_plugin_abi", path)(theirs, sizeof theirs);
  if (theirs != plugin_abi())
    throw PluginError(path + ": was built for another Millrace (" + theirs + "; this one is " +
                      plugin_abi() + "): build it again");
}

void add_all(const Plugin& plugin) {
  for (const auto& layer : plugin.layers) stages::add_layer_type(layer);
  for (const auto& loss : plugin.losses) stages::add_loss_type(loss);
  for (const auto& source : plugin.sources) io::add_source_kind(source);
  for (const auto& sink : plugin.sinks) {
    if (std::ranges::find(sinks, sink.name, &SinkType::name) != sinks.end())
      throw std::invalid_argument("sink " + sink.name + " is already registered");
    sinks.push_back(sink);
  }
}

}  // namespace

void load_plugin(const std::string& path) {
  // Lazily: a plug-in for another version may lack symbols, but can still report its ABI.
  void* const object = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!object) throw PluginError(dlerror());
  if (std::find(loaded.begin(), loaded.end(), object) != loaded.end()) return;
  require_abi(object, path);
  if (!dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) throw PluginError(dlerror());
  const auto fill = symbol<void (*)(Plugin&)>(object, "millrace_plugin", path);
  Plugin plugin;
  try {
    fill(plugin);
    add_all(plugin);
  } catch (const std::exception& error) {
    throw PluginError(path + ": " + error.what());
  } catch (...) {
    throw PluginError(path + ": an exception of an unknown type");
  }
  loaded.push_back(object);
}

int plugins_loaded() {
  return int(loaded.size());
}

const std::vector<SinkType>& sink_types() {
  return sinks;
}

}  // namespace millrace::app
