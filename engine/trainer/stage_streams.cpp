#include "engine/trainer/stage_streams.h"

#include <map>        // stages by device
#include <stdexcept>  // std::invalid_argument, std::runtime_error
#include <utility>    // keys

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

}  // namespace

bool records_on_device(const TrainerOptions& options, int unit) {
  if (options.make_backend) return !options.records || options.records(unit);
  return place_of(options, unit).is_cuda();
}

std::vector<std::vector<int>> stages_sharing(const TrainerOptions& options) {
  std::map<std::pair<c10::DeviceType, int>, std::vector<int>> on;
  const int units = options.devices.empty() ? options.stages : int(options.devices.size());
  for (int unit = 0; unit < units; ++unit) {
    if (!records_on_device(options, unit)) continue;
    const c10::Device place = place_of(options, unit);
    on[{place.type(), place.index()}].push_back(unit);
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

std::vector<std::unique_ptr<capture::Backend>> make_stage_streams(const TrainerOptions& options) {
  std::vector<std::unique_ptr<capture::Backend>> streams(options.stages);
  if (splits_device(options)) {
    for (const std::vector<int>& stages : stages_sharing(options)) {
      auto shares = split(options, place_of(options, stages.front()), stages);
      for (std::size_t i = 0; i < stages.size(); ++i) streams[stages[i]] = std::move(shares[i]);
    }
  }
  for (int stage = 0; stage < options.stages; ++stage) {
    if (streams[stage] || !records_on_device(options, stage)) continue;
    const c10::Device place = place_of(options, stage);
    streams[stage] =
        options.make_backend ? options.make_backend(place) : capture::make_graph_backend(place);
  }
  return streams;
}

}  // namespace millrace::engine
