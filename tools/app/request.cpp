#include <algorithm>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/format.h"
#include "io/source/source.h"
#include "tools/app/assembly.h"
#include "tools/app/intake.h"
#include "tools/app/outputs/outputs.h"
#include "tools/app/plugins/plugins.h"
#include "tools/app/ranks/rank_team.h"
#include "tools/app/request.h"
#include "tools/page/server.h"

namespace millrace::app {
namespace {

/// The type of a sink "NAME:ARGUMENT" and its argument. Throws ConfigError for an unknown name.
std::pair<const SinkType&, std::string> find_sink(const Config& config, const std::string& asked) {
  const std::size_t colon = std::min(asked.find(':'), asked.size());
  const std::string name = asked.substr(0, colon);
  const auto& types = sink_types();
  const auto type = std::ranges::find(types, name, &SinkType::name);
  if (type != types.end()) return {*type, asked.substr(std::min(colon + 1, asked.size()))};
  std::string known;
  for (const SinkType& one : types) known += (known.empty() ? "" : ", ") + one.name;
  throw config.error("output.sinks", "unknown sink \"" + name + "\"; plug-ins bring " +
                                         (known.empty() ? "none" : known));
}

std::vector<std::unique_ptr<Sink>> make_sinks(const Config& config) {
  std::vector<std::unique_ptr<Sink>> made;
  for (const std::string& asked : config.output.sinks) {
    const auto& [type, argument] = find_sink(config, asked);
    try {
      made.push_back(type.make(argument));
    } catch (const std::invalid_argument& error) {
      throw config.error("output.sinks", type.name + ": " + error.what());
    }
  }
  return made;
}

void require_launcher(const Config& config) {
  if (config.pipeline.tensor > 1)
    throw config.error("pipeline.tensor",
                       engine::format("%d ranks are to share modules: run it by mpirun -n %d",
                                      config.pipeline.tensor, config.pipeline.tensor));
  if (config.source.uris.size() > 1)
    throw config.error("source.uris",
                       engine::format("%zu pipelines learn one network: run it by mpirun -n %zu",
                                      config.source.uris.size(), config.source.uris.size()));
}

/// kOwn: the reader, the pipeline's thread, writers. Adds workers and GStreamer's elements.
int threads_needed(const Config& config) {
  constexpr int kOwn = 4, kDecoder = 8, kEncoder = 6;
  const std::vector<int>& threads = config.pipeline.threads;
  const int workers =
      std::max(config.pipeline.stages, std::accumulate(threads.begin(), threads.end(), 0));
  const std::string& uri = config.source.uri;
  const bool decodes = !uri.starts_with("synth:") && !uri.starts_with("images:");
  return kOwn + workers + (decodes ? kDecoder : 0) + (config.output.video.empty() ? 0 : kEncoder);
}

/// Starts and ends about as many threads as a run of `config` needs. Throws std::runtime_error if
/// the system refuses one; libraries that are refused one later abort or hang.
void require_system_threads(const Config& config) {
  const int needed = threads_needed(config);
  std::vector<std::thread> all;
  std::string refused;
  {
    std::mutex gate;
    std::unique_lock shut(gate);
    try {
      while (int(all.size()) < needed) all.emplace_back([&] { const std::lock_guard wait(gate); });
    } catch (const std::system_error& error) {
      refused = error.code().message();
    }
    shut.unlock();
    for (std::thread& one : all) one.join();
  }
  if (refused.empty()) return;
  throw std::runtime_error(
      engine::format("threads: this run needs about %d, and the system starts %zu (%s): raise its "
                     "limit on processes (pids.max, ulimit -u) or memory",
                     needed, all.size(), refused.c_str()));
}

}  // namespace

void require_sinks(const Config& config) {
  for (const std::string& asked : config.output.sinks) find_sink(config, asked);
}

Request::Request(const Config& given, RunOptions asked)
    : config(as_ranks_run(settled(given), asked.ranks)),
      options(std::move(asked)),
      trainer(assemble(config, configured_shape(config), &resumed,
                       options.given && options.given->targets)),
      labels(configured_labels(config)),
      classes(class_names(config, labels)),
      live_labels(told_live(config) ? std::make_shared<io::LiveLabels>(config.task.classes)
                                    : nullptr) {
  if (options.ranks)
    require_ranks(config, trainer, options.ranks->ranks());
  else
    require_launcher(config);
  if ((labels || live_labels) && !classes.empty())
    require_classes(config, *trainer.network, int(classes.size()));
  if (config.task.labels == "http" && !options.serve && config.mqtt.broker.empty())
    throw config.error("task.labels", "\"http\" needs the page, --serve, or mqtt.broker");
  require_outputs(config, options.trace);
  try {
    if (options.serve) page::web_options(options.serve_at, options.token);
  } catch (const std::invalid_argument& error) {
    throw ConfigError(std::string("--serve: ") + error.what());
  }
  sinks = make_sinks(config);
  require_system_threads(config);
}

std::string Request::source() const {
  return options.open_source || options.given ? "" : io::redacted(config.source.uri);
}

}  // namespace millrace::app
