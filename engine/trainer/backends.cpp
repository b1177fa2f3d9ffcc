#include <pthread.h>

#include <stdexcept>

#include "capture/program/program.h"
#include "engine/pipeline/pinning.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {
namespace {

/// Helpers are pinned to the cores after the stage's own.
std::unique_ptr<capture::Backend> make_core_backend(const TrainerOptions& options, int stage) {
  if (options.threads.empty()) return capture::make_core_backend(1, {}, options.numerics);
  const int core = options.devices.empty() ? 0 : options.devices[std::size_t(stage)].index;
  const auto started = [=](int index) {
    pthread_setname_np(pthread_self(), ("stage " + std::to_string(stage) + " helper").c_str());
    pin_this_thread(core + index);
  };
  return capture::make_core_backend(options.threads[std::size_t(stage)], started, options.numerics);
}

}  // namespace

std::string unrecordable(const TrainerOptions& options) {
  return options.replicas.empty() ? "" : "replicas meet at each update, which is no recorded work";
}

bool runs_programs(const TrainerOptions& options, int replica_id) {
  return !device_of(options, replica_id).is_cuda() && records(options, replica_id) &&
         unrecordable(options).empty();
}

bool records(const TrainerOptions& options, int replica_id) {
  if (device_of(options, replica_id).is_cuda() || options.capture == Capture::graph) return true;
  return options.capture == Capture::automatic && kernels::has_vectors();
}

bool records_any(const TrainerOptions& options) {
  bool any = options.devices.empty() && records(options, 0);
  for (std::size_t replica_id = 0; replica_id < options.devices.size(); ++replica_id)
    any = any || records(options, int(replica_id));
  if (!any || options.capture == Capture::eager) return false;
  const std::string why = unrecordable(options);
  if (!why.empty() && options.capture == Capture::graph)
    throw std::invalid_argument("pipeline.capture: " + why);
  return why.empty();
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
  for (int replica_id = 0; replica_id < replica_ids; ++replica_id) {
    if (here && !here(replica_id)) continue;
    const c10::Device place = device_of(options, replica_id);
    backends[replica_id] =
        !record || !records(options, replica_id) ? capture::make_eager_backend(place)
        : place.is_cuda()
            ? capture::make_graph_backend(place, program::gpu_lowering(place, options.numerics))
            : make_core_backend(options, replica_id);
  }
  return backends;
}

}  // namespace millrace::engine
