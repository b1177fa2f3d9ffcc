// pipeline_toml(): a plan as what `run` reads.
#include "engine/plan/text.h"

#include <algorithm>  // min

#include "engine/schedule/registry.h"

namespace millrace::engine::plan {
namespace {

template <class Value>
std::string list(const std::vector<Value>& values) {
  std::string text;
  for (const Value& value : values) {
    if (!text.empty()) text += ", ";
    if constexpr (std::is_same_v<Value, std::string>) {
      text += '"' + value + '"';
    } else {
      text += std::to_string(value);
    }
  }
  return "[" + text + "]";
}

/// The devices of every stage, stage by stage: those of its replicas in turn, copy by copy.
std::vector<int> devices_of(const Plan& plan, const Machine& machine) {
  const Method& method = plan.method;
  const int row = machine.devices() / (method.tensor * method.copies);
  // Where all devices are alike, those that are left over are the last ones.
  int first = machine.levels.size() == 1 ? row : 0;
  for (const Stage& stage : plan.cut.stages) first = std::min(first, stage.place);
  std::vector<int> devices;
  for (const Stage& stage : plan.cut.stages) {
    for (int copy = 0; copy < method.copies; ++copy) {
      for (int replica = 0; replica < stage.replicas; ++replica) {
        const int place = (stage.place - first + replica * stage.threads) % row;
        const int index = method.copies_inside ? place * method.copies + copy : copy * row + place;
        devices.push_back(index * method.tensor);
      }
    }
  }
  return devices;
}

}  // namespace

std::string pipeline_toml(const Plan& plan, const Machine& machine, const std::string& kind,
                          const std::vector<std::string>& names) {
  const Method& method = plan.method;
  std::vector<int> cut, replicas, threads;
  bool replicated = false, threaded = false;
  for (const Stage& stage : plan.cut.stages) {
    if (stage.begin > 0) cut.push_back(stage.begin);
    replicas.push_back(stage.replicas * method.copies);
    threads.push_back(stage.threads);
    replicated = replicated || replicas.back() > 1;
    threaded = threaded || stage.threads > 1;
  }
  std::vector<std::string> devices;
  for (const int device : devices_of(plan, machine)) {
    devices.push_back(names.empty() ? kind + ":" + std::to_string(device) : names.at(device));
  }
  std::string text = "[pipeline]\n";
  text += "schedule = \"" + method.schedule + "\"\n";
  text += "stages = " + std::to_string(plan.cut.stages.size()) + "\n";
  text += "cut = " + list(cut) + "\n";
  text += "devices = " + list(devices) + "\n";
  const ScheduleEntry& entry = schedule_entry(method.schedule);
  if (entry.minibatches) {
    text += "microbatches = " + std::to_string(method.microbatches * method.copies) + "\n";
  }
  if (entry.virtual_stages) {
    text += "virtual_stages = " + std::to_string(method.virtual_stages) + "\n";
  }
  if (replicated) {
    text += "replicas = " + list(replicas);
    text += entry.replicas ? "\n" : "  # planned only: run has no replicas of this schedule\n";
  }
  if (method.recompute) text += "recompute = true\n";
  if (threaded) text += "threads = " + list(threads) + "\n";
  if (method.tensor > 1) {
    text += "tensor = " + std::to_string(method.tensor) +
            "  # mpirun: so many ranks for each device above, on the next ones\n";
  }
  return text;
}

}  // namespace millrace::engine::plan
