// The interface of plug-ins: shared objects that add layers, losses, sources and sinks to the
// tables. A config loads them with plugins = ["./libmine.so"].
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <torch/headeronly/version.h>

#include "io/source/source.h"
#include "stages/layer.h"
#include "stages/loss.h"

namespace millrace::app {

struct Prediction;

/// Receives predictions; enabled by output.sinks = ["NAME:ARGUMENT"].
class Sink {
 public:
  virtual ~Sink() = default;
  /// Called for each prediction by the last stage's worker, in the hot path. Must not throw.
  virtual void see(const Prediction& prediction) = 0;
  /// Called at the end of the run, to write results. Throws std::runtime_error.
  virtual void finish() {}
};

struct SinkType {
  std::string name;
  std::string summary;
  /// `argument`: the text after the colon. Throws std::invalid_argument.
  std::unique_ptr<Sink> (*make)(const std::string& argument);
};

/// The entries that a plug-in adds. Its code stays loaded until the process ends.
struct Plugin {
  std::vector<stages::LayerType> layers;
  std::vector<stages::LossType> losses;
  std::vector<io::SourceKind> sources;
  std::vector<SinkType> sinks;
};

/// What program and plug-in must agree on: interface, LibTorch, compiler, layouts of shared types.
inline std::string plugin_abi() {
  char text[160];
  std::snprintf(text, sizeof text,
                "interface 2, LibTorch %s, C++ ABI %d, layouts %zu %zu %zu %zu %zu %zu",
                TORCH_VERSION, __GXX_ABI_VERSION, sizeof(Plugin),
                sizeof(stages::LayerType) + sizeof(stages::LayerSpec), sizeof(stages::LossType),
                sizeof(io::SourceKind) + sizeof(io::SourceOptions) + sizeof(io::SourceInfo),
                sizeof(io::Frame), sizeof(SinkType));
  return text;
}

}  // namespace millrace::app

namespace millrace {
using stages::LossTerm, app::Plugin, app::Sink;
}  // namespace millrace

/// Use once per plug-in: `fill`, of type void(millrace::Plugin&), adds its entries.
#define MILLRACE_PLUGIN(fill)                                            \
  extern "C" void millrace_plugin_abi(char* out, std::size_t room) {     \
    std::snprintf(out, room, "%s", millrace::app::plugin_abi().c_str()); \
  }                                                                      \
  extern "C" void millrace_plugin(millrace::Plugin& plugin) {            \
    fill(plugin);                                                        \
  }
