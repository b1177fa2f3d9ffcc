#include "engine/trainer/backends.h"

#include <pthread.h>  // names of threads

#include <map>        // stages by device
#include <stdexcept>  // std::invalid_argument, std::runtime_error
#include <utility>    // keys

#include "capture/program/core_backend.h"
#include "capture/program/kernels/kernels.h"
#include "engine/pipeline/pinning.h"

namespace millrace::engine {
namespace {

/// Measured ms of the modules of `stage`.
double work_of(const TrainerOptions& options, int stage) {
  const stages::StageRange range = range_of(options, stage);
  double ms = 0;
  for (int module = range.begin; module < range.end; ++module) ms += options.module_ms.at(module);
  return ms;
}

/// One for each of `stages`, all on `place`.
std::vector<std::unique_ptr<capture::Backend>> split(const TrainerOptions& options,
                                                     c10::Device place,
                                                     const std::vector<int>& stages) {
  std::vector<double> work;
  for (const int stage : stages) work.push_back(work_of(options, stage));
  try {
    return options.make_backends ? options.make_backends(place, work)
                                 : capture::make_graph_backends(place, work);
  } catch (const std::exception& error) {
    throw std::runtime_error("pipeline.sharing: " + place.str() +
                             " can't be split among its stages: " + error.what());
  }
}

/// Its helpers are pinned to the cores after the stage's own.
std::unique_ptr<capture::Backend> make_core_backend(const TrainerOptions& options, int stage) {
  if (options.threads.empty()) return capture::make_core_backend();
  const int core = options.devices.empty() ? 0 : options.devices[std::size_t(stage)].index;
  return capture::make_core_backend(options.threads[std::size_t(stage)], [=](int index) {
    pthread_setname_np(pthread_self(), ("stage " + std::to_string(stage) + " helper").c_str());
    pin_this_thread(core + index);
  });
}

}  // namespace

std::string unrecordable(const TrainerOptions& options) {
  return options.replicas.empty() ? "" : "replicas meet at each update, which is no recorded work";
}

bool runs_programs(const TrainerOptions& options, int replica_id) {
  return !options.make_backend && !place_of(options, replica_id).is_cuda() &&
         records(options, replica_id) && unrecordable(options).empty();
}

bool records(const TrainerOptions& options, int replica_id) {
  if (options.make_backend) return !options.records || options.records(replica_id);
  if (place_of(options, replica_id).is_cuda() || options.capture == Capture::graph) return true;
  return options.capture == Capture::automatic && kernels::has_vectors();
}

bool records_any(const TrainerOptions& options) {
  bool any = options.make_backend || (options.devices.empty() && records(options, 0));
  for (std::size_t replica_id = 0; replica_id < options.devices.size(); ++replica_id)
    any = any || records(options, int(replica_id));
  if (!any || options.capture == Capture::eager) return false;
  const std::string why = unrecordable(options);
  if (!why.empty() && options.capture == Capture::graph)
    throw std::invalid_argument("pipeline.capture: " + why);
  return why.empty();
}

std::vector<std::vector<int>> stages_sharing(const TrainerOptions& options) {
  std::map<std::pair<c10::DeviceType, int>, std::vector<int>> on;
  const int replica_ids = options.devices.empty() ? options.stages : int(options.devices.size());
  for (int replica_id = 0; replica_id < replica_ids; ++replica_id) {
    if (!records(options, replica_id)) continue;
    const c10::Device place = place_of(options, replica_id);
    if (!place.is_cuda() && !options.make_backend) continue;  // a core shares nothing
    on[{place.type(), place.index()}].push_back(replica_id);
  }
  std::vector<std::vector<int>> sharing;
  for (const auto& [place, stages] : on) {
    if (stages.size() > 1) sharing.push_back(stages);
  }
  return sharing;
}

bool splits_device(const TrainerOptions& options) {
  return options.sharing == Sharing::partitions && !stages_sharing(options).empty();
}

void require_sharing(const TrainerOptions& options) {
  if (!splits_device(options)) return;
  const std::string why =
      options.capture == Capture::eager ? "pipeline.capture is eager" : unrecordable(options);
  if (why.empty()) return;
  throw std::invalid_argument("pipeline.sharing: partitions are for recorded steps: " + why);
}

void require_threads(const TrainerOptions& options) {
  const auto fail = [](const std::string& what) {
    throw std::invalid_argument("pipeline.threads: " + what);
  };
  const std::vector<int>& threads = options.threads;
  if (threads.empty()) return;
  if (int(threads.size()) != options.stages)
    fail(std::to_string(threads.size()) + " counts, pipeline.stages is " +
         std::to_string(options.stages));
  for (int stage = 0; stage < options.stages; ++stage) {
    const int count = threads[std::size_t(stage)];
    if (count > usable_cores())
      fail(std::to_string(count) + " are more than the " + std::to_string(usable_cores()) +
           " usable cores");
    if (count <= 1) continue;
    if (!runs_programs(options, stage))
      fail("stage " + std::to_string(stage) +
           " runs no step program, whose operations alone threads can share");
  }
}

std::vector<std::unique_ptr<capture::Backend>> make_backends(const TrainerOptions& options,
                                                             int replica_ids, bool record,
                                                             const std::function<bool(int)>& here) {
  std::vector<std::unique_ptr<capture::Backend>> backends(replica_ids);
  if (record && splits_device(options)) {
    for (const std::vector<int>& stages : stages_sharing(options)) {
      auto shares = split(options, place_of(options, stages.front()), stages);
      for (std::size_t i = 0; i < stages.size(); ++i) backends[stages[i]] = std::move(shares[i]);
    }
  }
  for (int replica_id = 0; replica_id < replica_ids; ++replica_id) {
    if (backends[replica_id] || (here && !here(replica_id))) continue;
    const c10::Device place = place_of(options, replica_id);
    backends[replica_id] = !record || !records(options, replica_id)
                               ? capture::make_eager_backend(place)
                           : options.make_backend ? options.make_backend(place)
                           : place.is_cuda()      ? capture::make_graph_backend(place)
                                                  : make_core_backend(options, replica_id);
  }
  return backends;
}

}  // namespace millrace::engine
