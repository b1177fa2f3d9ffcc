#include "engine/trainer/trainer_options.h"

#include <algorithm>
#include <stdexcept>

#include "engine/schedule/registry.h"
#include "engine/schedule/schedule_csv.h"
#include "engine/schedule/verifier.h"

namespace millrace::engine {

Schedule schedule_of(const TrainerOptions& options) {
  ScheduleSpec spec = options;
  spec.deep_supervision = options.correction.kind == "deep-supervision";
  Schedule schedule = make_schedule(spec);
  if (const std::optional<Fault> fault = verify(schedule)) {
    throw std::invalid_argument(fault->text(schedule.name));
  }
  return schedule;
}

void require_cut(const std::vector<int>& cut, int stages, int modules) {
  if (int(cut.size()) != stages - 1) {
    throw std::invalid_argument(std::to_string(cut.size()) + " cut positions make " +
                                std::to_string(cut.size() + 1) + " stages, pipeline.stages is " +
                                std::to_string(stages));
  }
  int before = 0;
  for (const int place : cut) {
    if (place <= before || place >= modules) {
      throw std::invalid_argument("cut positions must increase and lie between 1 and " +
                                  std::to_string(modules - 1));
    }
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

void require_cut(const TrainerOptions& options, const Schedule& schedule,
                 const std::vector<int>& cut) {
  require_cut(cut, options.stages, options.network->size());
  require_correction(options, schedule, cut);
}

bool may_cut_at(const TrainerOptions& options, const Schedule& schedule,
                const std::vector<int>& cut) {
  try {
    require_cut(options, schedule, cut);
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
  stages::Stage stage(options.network, range_of(options, index), options.optimizer,
                      device_of(options, replica_id),
                      stages::StageOptions{schedule.versions_of(index), needs.split,
                                           needs.recompute, options.correction, delay,
                                           runs_programs(options, replica_id), options.loss});
  stage.restore(options.weights);
  return stage;
}

std::vector<stages::Stage> build_stages(const TrainerOptions& options, const Schedule& schedule) {
  std::vector<stages::Stage> stages;
  for (int index = 0; index < schedule.stages; ++index) {
    for (int replica = 0; replica < schedule.replicas_of(index); ++replica)
      stages.push_back(build_stage(options, schedule, index, schedule.replica_id(index, replica)));
  }
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

}  // namespace millrace::engine
