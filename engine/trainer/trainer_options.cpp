#include "engine/trainer/trainer_options.h"

#include <algorithm>
#include <stdexcept>

#include "capture/program/program.h"
#include "engine/format.h"
#include "engine/pipeline/pinning.h"
#include "engine/schedule/launch_groups.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/registry.h"
#include "engine/schedule/schedule_csv.h"
#include "engine/schedule/verifier.h"

namespace millrace::engine {
Schedule schedule_of(const TrainerOptions& options) {
  ScheduleSpec spec = options;
  spec.deep_supervision = options.correction.kind == "deep-supervision";
  Schedule schedule = make_schedule(spec);
  // A GPU has tensors at its cuts for each sample in flight, so that a copy would only cost more.
  schedule.stores_inputs =
      options.correction.inputs == "uint8" && std::ranges::none_of(options.devices, &Device::cuda);
  if (const std::optional<Fault> fault = verify(schedule)) {
    throw std::invalid_argument(fault->text(schedule.name));
  }
  return schedule;
}

void require_cut(const std::vector<int>& cut, int stages, int modules) {
  require_that(int(cut.size()) == stages - 1,
               "%zu cut positions make %zu stages, pipeline.stages is %d", cut.size(),
               cut.size() + 1, stages);
  int before = 0;
  for (const int place : cut) {
    require_that(place > before && place < modules,
                 "cut positions must increase and lie between 1 and %d", modules - 1);
    before = place;
  }
}

void require_correction(const TrainerOptions& options, const Schedule& schedule,
                        const std::vector<int>& cut) {
  const std::string& kind = options.correction.kind;
  const auto fail = [&](const std::string& what) {
    throw std::invalid_argument("correction.kind: " + kind + " " + what);
  };
  const bool stashes = std::any_of(schedule.versions.begin(), schedule.versions.end(),
                                   [](int versions) { return versions > 1; });
  if (stashes && (kind == "discrepancy" || kind == "weight-prediction"))
    fail("stands in for stashed weights, which " + schedule.name + " keeps");
  if (schedule.stages == 1) return;
  if (kind == "spike-compensation" &&
      (options.optimizer.kind != "sgd" || options.optimizer.momentum == 0))
    fail("is for optimizer sgd with momentum");
  if (kind != "local" && kind != "deep-supervision") return;
  if (kind == "deep-supervision" && !stage_needs(schedule).front().local) {
    if (!is_schedule_file(schedule.name) && schedule_entry(schedule.name).deep_supervision)
      return require_correction(options, schedule_of(options), cut);
    fail("is for the schedules that keep one version of the weights, partime and pb");
  }
  if (!options.replicas.empty()) fail("has no replicated stages");
  const stages::Network& network = *options.network;
  const stages::ImageShape& target = network.output();
  std::vector<int> places = cut;
  for (int place = 1; cut.empty() && place < network.size(); ++place) places.push_back(place);
  for (const int place : places) {
    const stages::ImageShape& mine = network.shape(place - 1);
    const bool vector = target.height == 1 && target.width == 1;  // compared with a map's mean
    if (vector || (mine.height == target.height && mine.width == target.width)) continue;
    fail("needs stages whose maps have the target's size, which module " +
         std::to_string(place - 1) + "'s have not; name a cut where they have");
  }
}

bool may_cut_at(const TrainerOptions& options, const Schedule& schedule,
                const std::vector<int>& cut) {
  try {
    require_cut(cut, options.stages, options.network->size());
    require_correction(options, schedule, cut);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

stages::StageRange range_of(const TrainerOptions& options, int stage) {
  const bool first = stage == 0, last = stage == int(options.cut.size());
  return {first ? 0 : options.cut[stage - 1], last ? options.network->size() : options.cut[stage],
          first, last};
}

c10::Device torch_device(const Device& device) {
  return device.cuda ? c10::Device(c10::kCUDA, c10::DeviceIndex(device.index))
                     : c10::Device(c10::kCPU);
}

c10::Device device_of(const TrainerOptions& options, int replica_id) {
  return options.devices.empty() ? c10::Device(c10::kCPU)
                                 : torch_device(options.devices[replica_id]);
}

std::vector<int> threads_of_workers(const TrainerOptions& options, const Schedule& schedule) {
  std::vector<int> threads;
  for (const Program& program : schedule.workers) {
    threads.push_back(1);
    for (const int stage : stages_of(program)) {
      if (std::size_t(stage) < options.threads.size())
        threads.back() = std::max(threads.back(), options.threads[std::size_t(stage)]);
    }
  }
  return threads;
}

stages::Stage build_stage(const TrainerOptions& options, const Schedule& schedule, int index,
                          int replica_id) {
  const StageNeeds needs = stage_needs(schedule)[index];
  const std::int64_t age = gradient_ages(schedule)[std::size_t(index)];
  const stages::Delay delay{.frames = age,
                            .updates = age / schedule.samples_an_update(index),
                            .on_later_sample = first_backwards(schedule)[std::size_t(index)] > 0};
  stages::Stage stage(
      options.network, range_of(options, index), options.optimizer, device_of(options, replica_id),
      stages::StageOptions{schedule.versions_of(index), needs.split, needs.recompute,
                           options.correction, delay, runs_programs(options, replica_id),
                           options.loss, schedule.stores_inputs});
  stage.restore(options.weights);
  return stage;
}

std::vector<stages::Stage> build_stages(const TrainerOptions& options, const Schedule& schedule) {
  const Lowering lowering(schedule);
  std::vector<stages::Stage> stages;
  for (int replica_id = 0; replica_id < schedule.replica_ids(); ++replica_id)
    stages.push_back(build_stage(options, schedule, lowering.stage(replica_id), replica_id));
  return stages;
}

void tie_replicas(const Schedule& schedule, const std::vector<stages::Stage*>& stages,
                  const std::function<const stages::Tensors*(int from, int to)>& elsewhere) {
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const int replicas = schedule.replicas_of(stage), first = schedule.replica_id(stage, 0);
    if (replicas == 1) continue;
    for (int to = first; to < first + replicas; ++to) {
      if (!stages[std::size_t(to)]) continue;
      std::vector<const stages::Tensors*> sums;
      for (int from = first; from < first + replicas; ++from) {
        const stages::Stage* const here = stages[std::size_t(from)];
        sums.push_back(here ? &here->sums() : elsewhere(from, to));
      }
      stages[std::size_t(to)]->replicate(std::move(sums));
    }
  }
}

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
  require_that(why.empty() || options.capture != Capture::graph, "pipeline.capture: %s",
               why.c_str());
  return why.empty();
}

Schedule schedule_to_run(const TrainerOptions& options) {
  Schedule schedule = schedule_of(options);
  if (!records_any(options)) return schedule;
  schedule = for_recording(std::move(schedule));
  // Others have a set for each slot.
  const bool shares = !options.exchange && std::ranges::none_of(options.devices, &Device::cuda);
  return shares ? with_fewest_sets(std::move(schedule)) : schedule;
}

void require_threads(const TrainerOptions& options) {
  const std::vector<int>& threads = options.threads;
  if (threads.empty()) return;
  require_that(int(threads.size()) == options.stages,
               "pipeline.threads: %zu counts, pipeline.stages is %d", threads.size(),
               options.stages);
  for (int stage = 0; stage < options.stages; ++stage) {
    const int count = threads[std::size_t(stage)];
    require_that(count <= usable_cores(), "pipeline.threads: %d are more than the %d usable cores",
                 count, usable_cores());
    require_that(count <= 1 || runs_programs(options, stage),
                 "pipeline.threads: stage %d runs no step program, whose operations alone threads "
                 "can share",
                 stage);
  }
}

std::unique_ptr<capture::Backend> make_backend(c10::Device device, bool recorded,
                                               const kernels::Numerics& numerics, int threads,
                                               const std::function<void(int index)>& started) {
  if (!recorded) return capture::make_eager_backend(device);
  if (!device.is_cuda()) return capture::make_core_backend(threads, started, numerics);
  return capture::make_graph_backend(device, program::gpu_lowering(device, numerics));
}

std::vector<std::unique_ptr<capture::Backend>> make_backends(const TrainerOptions& options,
                                                             int replica_ids, bool record,
                                                             const std::function<bool(int)>& here) {
  std::vector<std::unique_ptr<capture::Backend>> backends(replica_ids);
  for (int replica_id = 0; replica_id < replica_ids; ++replica_id) {
    if (here && !here(replica_id)) continue;
    const bool recorded = record && records(options, replica_id);
    const bool shares = recorded && !options.threads.empty();
    const int threads = shares ? options.threads[std::size_t(replica_id)] : 1;
    const int core = options.devices.empty() ? 0 : options.devices[std::size_t(replica_id)].index;
    const auto pin = [=](int index) {  // helpers, to the cores after the stage's own
      name_this_thread("stage " + std::to_string(replica_id) + " helper");
      pin_this_thread(core + index);
    };
    backends[replica_id] =
        make_backend(device_of(options, replica_id), recorded, options.numerics, threads, pin);
  }
  return backends;
}

}  // namespace millrace::engine
