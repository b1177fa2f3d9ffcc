#include "engine/plan/methods.h"

#include <algorithm>
#include <stdexcept>

#include "engine/schedule/registry.h"

namespace millrace::engine::plan {
namespace {

std::vector<int> divisors(int number, int most) {
  std::vector<int> list;
  for (int d = 1; d <= std::min(number, most); ++d) {
    if (number % d == 0) list.push_back(d);
  }
  return list;
}

/// Cuts to look for with one method: flushing pipelines of one width take all devices.
void add(const Method& method, const Request& request, std::vector<Candidate>& list) {
  const ScheduleEntry& entry = schedule_entry(method.schedule);
  const int places = request.machine.devices() / (method.tensor * method.copies);
  Freedom freedom{.replicas = request.replicas && entry.replicates,
                  .threads = request.threads,
                  .stages = request.stages};
  if (entry.virtual_stages) {
    freedom = {.stages = places * method.virtual_stages};
    if (request.stages > 0 && request.stages != freedom.stages) return;
    if (!suits(method, freedom.stages)) return;
  } else if (entry.flushes && !freedom.replicas && !freedom.threads && request.stages == 0) {
    freedom.stages = places;
  }
  if (freedom.stages > 0 && !suits(method, freedom.stages)) return;
  list.push_back({method, freedom});
  // Where stages wait for one another, the cut with the fastest slowest stage is not the best.
  if (freedom.threads && !entry.virtual_stages && places > 1)
    list.push_back({method, {.together = true}});
}

void add_shares(Method method, const Profile& profile, const Request& request,
                std::vector<Candidate>& list) {
  int ways = 1;
  for (const ModuleProfile& module : profile.modules) ways = std::max(ways, module.tensor_ways);
  const ScheduleEntry& entry = schedule_entry(method.schedule);
  const bool copies = entry.replicates || entry.flushes;
  const int devices = request.machine.devices(), samples = method.microbatches;
  for (const int tensor : divisors(devices, std::min(ways, request.most_tensor))) {
    for (const int share : divisors(devices / tensor, copies ? request.most_copies : 1)) {
      if (entry.minibatches && samples % share != 0) continue;
      method.tensor = tensor;
      method.copies = share;
      method.microbatches = entry.minibatches ? samples / share : 1;
      for (const bool inside : {false, true}) {
        method.copies_inside = inside;
        if (!inside || share > 1) add(method, request, list);
      }
    }
  }
}

}  // namespace

bool suits(const Method& method, int stages) {
  const ScheduleEntry& entry = schedule_entry(method.schedule);
  if (entry.fits_minibatch) return method.microbatches >= stages;
  if (!entry.virtual_stages) return true;
  return stages % method.virtual_stages == 0 &&
         method.microbatches % (stages / method.virtual_stages) == 0;
}

std::vector<Candidate> candidates(const Profile& profile, const Request& request) {
  const int modules = int(profile.modules.size());
  if (request.stages > std::min(modules, request.machine.devices())) {
    throw PlanError(std::to_string(request.stages) + " stages do not fit " +
                    std::to_string(modules) + " modules on " +
                    std::to_string(request.machine.devices()) + " devices");
  }
  std::vector<Candidate> list;
  for (const std::string& schedule : request.schedules) {
    const ScheduleEntry& entry = schedule_entry(schedule);
    for (const int m : entry.minibatches ? request.microbatches : std::vector<int>{1}) {
      for (const int v : entry.virtual_stages ? request.virtual_stages : std::vector<int>{1}) {
        if (m < 1 || v < 1) throw std::invalid_argument("microbatches and chunks begin at 1");
        for (const bool recompute : {false, true}) {
          if (recompute && !request.recompute) continue;
          add_shares({.schedule = schedule,
                      .microbatches = m,
                      .virtual_stages = v,
                      .recompute = recompute},
                     profile, request, list);
        }
      }
    }
  }
  if (list.empty()) {
    throw PlanError(
        "no method fits: 2bw needs microbatches >= stages, interleaved microbatches in "
        "multiples of its workers");
  }
  return list;
}

}  // namespace millrace::engine::plan
