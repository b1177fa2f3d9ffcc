#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capture/backend.h"
#include "capture/program/kernels/kernels.h"
#include "capture/wire.h"
#include "engine/schedule/schedule.h"
#include "engine/trainer/device.h"
#include "stages/network.h"
#include "stages/optimizer.h"
#include "stages/parameters.h"
#include "stages/stage.h"
#include "stages/training_spec.h"

namespace millrace::engine {

class Exchange;

/// How a stage's step runs.
enum class Capture {
  automatic,  ///< recorded; eager where it can't be, or a core has no vectors
  graph,      ///< recorded on every device whose backend can record; failure is an error
  eager,      ///< each operator launched again for every sample
};

/// The GPUs of each rank, by their index there.
using GpusOfRanks = std::vector<std::vector<capture::GpuId>>;

struct TrainerOptions : ScheduleSpec {
  std::shared_ptr<const stages::Network> network;
  stages::ImageShape sample;    ///< all sizes known
  int context = 1;              ///< frames in a sample; the channels of the latest come last
  bool target_is_input = true;  ///< autoencode: one buffer for both; else shaped as the output
  stages::LossSpec loss;
  /// Targets are written after the samples were taken, see Feed::target(); not with replicas.
  bool late_targets = false;
  /// The feed writes frames in 8 bits per channel, a quarter of the bytes to copy to a GPU; each
  /// stage that reads one converts it to floats on its device.
  bool input_as_bytes = false;
  bool target_as_bytes = false;  ///< for a target that is a frame, but not the input
  std::vector<int> cut;          ///< empty: balanced by measured times
  std::vector<Device> devices;   ///< one per replica of each stage; empty: one core per worker
  /// Threads of each stage, on its core and the next ones, which share each operation of its step
  /// program. Empty: one; 0: the number that makes the slowest stage fastest. Results are the same.
  std::vector<int> threads;
  kernels::Numerics numerics;
  stages::OptimizerSpec optimizer;
  stages::CorrectionSpec correction;
  bool guard = false;         ///< roll back when the loss diverges
  stages::StateDict weights;  ///< may be a whole checkpoint; empty: initial_state(seed)
  std::uint64_t seed = 0;
  double fps = 0;          ///< F for the monitor's verdict; 0: unknown
  bool may_recut = false;  ///< recut() may be called, so modules are always measured
  Capture capture = Capture::automatic;
  /// The processes that the workers are spread over, each with a trainer of equal options; null:
  /// only this one. Must outlive the trainer. For cores, without late targets.
  Exchange* exchange = nullptr;
  std::vector<int> rank_of_worker;  ///< empty: contiguous
  GpusOfRanks gpus;  ///< recorded steps on two of them share a capture::Wire; may be empty
  std::vector<double> module_ms;  ///< cost of each; empty: measured if the cut needs it

  /// One of a sample's frames.
  stages::ImageShape frame() const {
    return {sample.channels / context, sample.height, sample.width};
  }
  const stages::ImageShape& output() const { return network->output(); }
  std::size_t target_elements() const {
    return std::size_t((target_is_input ? sample : output()).elements());
  }
};

Schedule schedule_of(const TrainerOptions& options);

/// Throws std::invalid_argument unless `cut` makes `stages` non-empty stages of `modules` modules.
void require_cut(const std::vector<int>& cut, int stages, int modules);

/// Throws std::invalid_argument, "correction.kind: ...", if network, optimizer, schedule or `cut`
/// do not support `options.correction`.
void require_correction(const TrainerOptions& options, const Schedule& schedule,
                        const std::vector<int>& cut);
inline void require_correction(const TrainerOptions& options, const Schedule& schedule) {
  require_correction(options, schedule, options.cut);
}

/// Whether neither require_cut() nor require_correction() would throw.
bool may_cut_at(const TrainerOptions& options, const Schedule& schedule,
                const std::vector<int>& cut);

/// `options`: with a cut.
stages::StageRange range_of(const TrainerOptions& options, int stage);
c10::Device torch_device(const Device& device);
/// The device of replica `replica_id` (see Schedule): a core if none was named.
c10::Device device_of(const TrainerOptions& options, int replica_id);
/// [worker]: the most that any of its stages has.
std::vector<int> threads_of_workers(const TrainerOptions& options, const Schedule& schedule);

/// Stage `index` of `network` at `cut`, with `weights`, for replica `replica_id`; for oracle and
/// trainer. tie_replicas() ties replicas once they are in their final place.
stages::Stage build_stage(const TrainerOptions& options, const Schedule& schedule, int index,
                          int replica_id);
/// All stages, by Schedule::replica_id().
std::vector<stages::Stage> build_stages(const TrainerOptions& options, const Schedule& schedule);

/// Makes the replicas of each stage share their gradients. `stages`: by Schedule::replica_id();
/// null: in another process, and `elsewhere` returns the gradients from replica `from` for `to`.
void tie_replicas(const Schedule& schedule, const std::vector<stages::Stage*>& stages,
                  const std::function<const stages::Tensors*(int from, int to)>& elsewhere = {});

/// Why no step of `options` can be recorded on any backend; "" if they can.
std::string unrecordable(const TrainerOptions& options);

/// Whether replica `replica_id` (as in Schedule) runs step programs on a core.
bool runs_programs(const TrainerOptions& options, int replica_id);

/// Whether the replica's step is recorded, unless something else forbids it.
bool records(const TrainerOptions& options, int replica_id);

/// Whether any step is recorded. Throws std::invalid_argument, "pipeline.capture: ...", if
/// Capture::graph is impossible.
bool records_any(const TrainerOptions& options);

/// schedule_of() with the slots of a run: where steps are recorded, more than it needs.
Schedule schedule_to_run(const TrainerOptions& options);

/// Throws std::invalid_argument, "pipeline.threads: ...", unless options.threads has one count per
/// stage that this machine's cores can serve, above 1 only for step programs.
void require_threads(const TrainerOptions& options);

/// For steps that are `recorded` or eager. `threads`, `started`: on a core, see
/// capture::make_core_backend().
std::unique_ptr<capture::Backend> make_backend(c10::Device device, bool recorded,
                                               const kernels::Numerics& numerics, int threads = 1,
                                               const std::function<void(int index)>& started = {});

/// A backend for each replica that is `here` (empty: all); all eager unless `record`.
std::vector<std::unique_ptr<capture::Backend>> make_backends(
    const TrainerOptions& options, int replica_ids, bool record,
    const std::function<bool(int)>& here = {});

}  // namespace millrace::engine
