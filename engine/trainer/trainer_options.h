// What a trainer is asked for, and what follows from it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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

/// What becomes of a stage's step; see backends.h.
enum class Capture {
  automatic,  ///< recorded, eager where it can't be or a core has no vectors
  graph,      ///< recorded wherever the device has a backend that records; failing is an error
  eager,      ///< each operator launched anew
};

/// The GPUs of each rank, by their numbers there.
using GpusOfRanks = std::vector<std::vector<capture::GpuId>>;

struct TrainerOptions : ScheduleSpec {
  std::shared_ptr<const stages::Network> network;
  stages::ImageShape sample;    ///< every size known
  int context = 1;              ///< frames in it, the latest one's channels last
  bool target_is_input = true;  ///< autoencode: one buffer serves both; else as the network gives
  stages::LossSpec loss;
  /// Targets are written after the samples were taken, see Feed::target(). Not with replicas.
  bool late_targets = false;
  /// The feed writes frames as they are, 8 bits a channel: a quarter of what floats take on their
  /// way to a GPU. Each stage that reads one makes floats of it on its own device.
  bool input_as_bytes = false;
  bool target_as_bytes = false;  ///< of a target that is a frame, but not the input
  std::vector<int> cut;          ///< empty: balanced from measured times
  std::vector<Device> devices;   ///< one for each replica of each stage; empty: one a worker
  /// Threads of each stage, on its core and those after it, which share each operation of its step
  /// program; empty: one; 0: as many as make the slowest stage fastest. Numbers are the same with
  /// any count.
  std::vector<int> threads;
  kernels::Numerics numerics;
  stages::OptimizerSpec optimizer;
  stages::CorrectionSpec correction;
  bool guard = false;         ///< roll back when the loss goes astray
  stages::StateDict weights;  ///< or a whole checkpoint; empty: initial_state(seed)
  std::uint64_t seed = 0;
  double fps = 0;          ///< F of the monitor's verdict; 0: unknown
  bool may_recut = false;  ///< recut() may be called: modules are measured in any case
  Capture capture = Capture::automatic;
  /// Makes the backends that steps are recorded on, whatever their device; empty: the device's own.
  /// For tests.
  std::function<std::unique_ptr<capture::Backend>(c10::Device)> make_backend;
  std::function<bool(int stage)> records;  ///< with make_backend: which stages; empty: all
  /// The processes that the workers are spread over, each of which has a trainer with the same
  /// options; null: this one alone. Outlives the trainer. For cores, without late targets.
  Exchange* exchange = nullptr;
  std::vector<int> rank_of_worker;  ///< empty: dealt in order
  GpusOfRanks gpus;  ///< recorded steps on two of them have a capture::Wire; empty: none has
  std::vector<double> module_ms;  ///< what each costs; empty: measured where the cut needs it

  stages::ImageShape frame() const {
    return {sample.channels / context, sample.height, sample.width};
  }
};

/// The schedule that `options` names, verified. Throws std::invalid_argument.
Schedule schedule_of(const TrainerOptions& options);

/// Throws std::invalid_argument unless `cut` makes `stages` stages of at least one of `modules`
/// modules.
void require_cut(const std::vector<int>& cut, int stages, int modules);

/// Throws std::invalid_argument, "correction.kind: ...", if `options.correction` asks for what
/// network, optimizer or schedule do not give.
void require_correction(const TrainerOptions& options, const Schedule& schedule);

/// Where `stage` lies in the network. `options`: with a cut.
stages::StageRange range_of(const TrainerOptions& options, int stage);
c10::Device torch_device(const Device& device);
/// Where Schedule::replica_id() `replica_id` runs: a core if no device was named.
c10::Device place_of(const TrainerOptions& options, int replica_id);
/// For each worker of `schedule`, the most that any of its stages has.
std::vector<int> threads_of_workers(const TrainerOptions& options, const Schedule& schedule);

/// Stage `index` of `network` at `cut`, with `weights`, for Schedule::replica_id() `replica_id`.
/// The oracle and the trainer build them alike. Replicas are not tied yet: tie_replicas() does it
/// where they will stay.
stages::Stage build_stage(const TrainerOptions& options, const Schedule& schedule, int index,
                          int replica_id);
/// All of them, by Schedule::replica_id().
std::vector<stages::Stage> build_stages(const TrainerOptions& options, const Schedule& schedule);

/// Has the replicas of each stage share their gradients. `stages`: by Schedule::replica_id(); null:
/// in another process, and `elsewhere` gives what of replica `from` comes to `to`.
void tie_replicas(const Schedule& schedule, const std::vector<stages::Stage*>& stages,
                  const std::function<const stages::Tensors*(int from, int to)>& elsewhere = {});

}  // namespace millrace::engine
