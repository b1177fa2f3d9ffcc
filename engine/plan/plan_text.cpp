#include "engine/plan/plan_text.h"

#include <algorithm>

#include "engine/format.h"
#include "engine/schedule/registry.h"

namespace millrace::engine::plan {
namespace {

std::string range(int first, int last) {
  return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
}

std::string method_text(const Method& method) {
  std::string text = method.schedule;
  if (schedule_entry(method.schedule).minibatches) {
    text += ", " + std::to_string(method.microbatches) + " microbatches";
  }
  if (method.virtual_stages > 1) {
    text += ", " + std::to_string(method.virtual_stages) + " stages a worker";
  }
  if (method.recompute) text += ", recomputing";
  if (method.tensor > 1) text += ", tensor " + std::to_string(method.tensor);
  if (method.copies > 1) {
    text += ", " + std::to_string(method.copies) + " copies" +
            (method.copies_inside ? " side by side" : "");
  }
  return text;
}

std::string list(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ", ") + value;
  return "[" + text + "]";
}

std::string cut_text(const std::vector<Stage>& stages) {
  std::vector<std::string> cut, replicas;
  bool wide = false;
  for (const Stage& stage : stages) {
    if (stage.begin > 0) cut.push_back(std::to_string(stage.begin));
    replicas.push_back(std::to_string(stage.replicas) +
                       (stage.threads > 1 ? "x" + std::to_string(stage.threads) : ""));
    wide = wide || stage.places() > 1;
  }
  return "cut " + list(cut) + (wide ? ", replicas " + list(replicas) : "");
}

std::string stage_rows(const Profile& profile, const CostModel& model, const Plan& plan) {
  std::string text =
      "stage modules    replicas threads    work   agree  arrive   leave  period ms    memory "
      "versions samples  age\n";
  const auto& stages = plan.cut.stages;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const Stage& stage = stages[i];
    const StageTime time = model.time(stage);
    const StageMemory& memory = plan.outcome.memory[i % plan.outcome.memory.size()];
    text +=
        format("%-5zu %-10s %8d %7d %7.3f %7.3f %7.3f %7.3f %10.3f %9s %8d %7d %4lld  %s%s\n", i,
               range(stage.begin, stage.end - 1).c_str(), stage.replicas, stage.threads, time.work,
               time.agree, time.arrive, time.leave, time.period(model.machine().overlap),
               bytes_text(memory.total()).c_str(), memory.versions, memory.samples,
               static_cast<long long>(plan.outcome.gradient_age[i]),
               profile.modules[stage.begin].name.c_str(),
               int(i) == plan.cut.bottleneck ? "  <- slowest" : "");
  }
  return text;
}

int places_of(const Cut& cut) {
  int places = 0;
  for (const Stage& stage : cut.stages) places += stage.places();
  return places;
}

/// Which part of the slowest stage takes longest.
std::string why_text(const CostModel& model, const Plan& plan) {
  const Stage& slowest = plan.cut.stages[plan.cut.bottleneck];
  const StageTime time = model.time(slowest);
  const std::pair<const char*, double> parts[] = {{"its work", time.work},
                                                  {"agreeing on gradients", time.agree},
                                                  {"messages upstream", time.arrive},
                                                  {"messages downstream", time.leave}};
  const auto most = std::max_element(std::begin(parts), std::end(parts),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  std::string text = format("why       stage %d sets the pace, by %s: %.3f of %.3f ms a sample",
                            plan.cut.bottleneck, most->first, most->second, plan.cut.period_ms);
  const int used = places_of(plan.cut);
  return text + format("; T over its %d places is %.3f ms\n", used, plan.outcome.T_ms / used);
}

std::string idle_text(const Plan& plan, const Request& request) {
  const int idle =
      request.machine.devices() - places_of(plan.cut) * plan.method.copies * plan.method.tensor;
  if (idle <= 0) return "";
  const int slowest = plan.cut.bottleneck;
  const Stage& stage = plan.cut.stages[slowest];
  const std::string why =
      request.stages > 0 ? "--stages asks for " + std::to_string(request.stages)
      : stage.end - stage.begin == 1
          ? "stage " + std::to_string(slowest) + " sets the pace and is one module, uncut"
          : "with more stages the slowest would not be quicker, hand-offs counted";
  return format("idle      %d of %d devices: %s\n", idle, request.machine.devices(), why.c_str());
}

std::string others_text(const std::vector<Plan>& plans) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t i = 1; i < plans.size() && i <= most; ++i) {
    const Outcome& outcome = plans[i].outcome;
    text += format("other     %s: %.4g frames a second (%+.1f %%), latency %.3g ms, memory %s\n",
                   (method_text(plans[i].method) + ", " +
                    std::to_string(plans[i].cut.stages.size()) + " stages")
                       .c_str(),
                   outcome.frames_a_second,
                   100 * (outcome.frames_a_second / plans[0].outcome.frames_a_second - 1),
                   outcome.latency_ms, bytes_text(outcome.peak_bytes).c_str());
  }
  if (plans.size() > most + 1) text += format("          and %zu more\n", plans.size() - most - 1);
  return text;
}

std::string rule_text(const Profile& profile, const Plan& plan, double fps) {
  if (fps <= 0) return "";
  const double budget = 1000.0 / fps;
  const double n = places_of(plan.cut) * plan.method.copies;  // places, whether as stages, replicas
                                                              // or threads
  const double share = plan.outcome.T_ms / profile.frames / n;
  const double frame = plan.outcome.sample_ms / profile.frames;
  return format(
      "real time %s: a frame every %.3f ms %s 1/F %.3f ms at %g frames a second; T/N %.3f ms "
      "%s 1/F\n",
      frame <= budget ? "HOLDS" : "FAILS", frame, frame <= budget ? "<=" : ">", budget, fps, share,
      share < budget ? "<" : ">=");
}

/// Devices by stage, copy and replica.
std::vector<int> devices_of(const Plan& plan, const Machine& machine) {
  const Method& method = plan.method;
  const int row = machine.devices() / (method.tensor * method.copies);
  // With one level, idle devices come last.
  int first = machine.levels.size() == 1 ? row : 0;
  for (const Stage& stage : plan.cut.stages) first = std::min(first, stage.place);
  std::vector<int> devices;
  for (const Stage& stage : plan.cut.stages) {
    for (int copy = 0; copy < method.copies; ++copy) {
      for (int replica = 0; replica < stage.replicas; ++replica) {
        const int place = (stage.place - first + replica * stage.threads) % row;
        devices.push_back(method.device(place, copy, row));
      }
    }
  }
  return devices;
}

}  // namespace

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 999.5 && unit < 4; ++unit) bytes /= 1000;
  return format(unit == 0 ? "%.0f %s" : "%.3g %s", bytes, units[unit]);
}

std::string plan_text(const Profile& profile, const Request& request,
                      const std::vector<Plan>& plans) {
  const Plan& plan = plans.front();
  const CostModel model(profile, request.machine, plan.method);
  const Outcome& outcome = plan.outcome;
  std::string text = "network   " + profile.network + ", " +
                     std::to_string(profile.modules.size()) + " modules, on " +
                     std::to_string(request.machine.devices()) + " devices\n";
  text += "plan      " + method_text(plan.method) + ", " + std::to_string(plan.cut.stages.size()) +
          " stages, " + cut_text(plan.cut.stages) + "\n";
  text += stage_rows(profile, model, plan);
  text += why_text(model, plan) + idle_text(plan, request) + others_text(plans);
  text +=
      format("expect    %.4g frames a second, latency %.4g ms, at most %s a device",
             outcome.frames_a_second, outcome.latency_ms, bytes_text(outcome.peak_bytes).c_str());
  if (request.machine.memory_bytes > 0) {
    text += " of " + bytes_text(request.machine.memory_bytes);
  }
  if (outcome.bubble > 0) text += format(", bubble %.3g of the work", outcome.bubble);
  const auto& ages = outcome.gradient_age;
  text += format(", gradients up to %lld frames old\n",
                 static_cast<long long>(*std::max_element(ages.begin(), ages.end())));
  return text + rule_text(profile, plan, request.fps);
}

std::string pipeline_toml(const Plan& plan, const Machine& machine, const std::string& kind) {
  const Method& method = plan.method;
  std::vector<std::string> cut, replicas, threads, devices;
  bool replicated = false, threaded = false;
  for (const Stage& stage : plan.cut.stages) {
    if (stage.begin > 0) cut.push_back(std::to_string(stage.begin));
    replicas.push_back(std::to_string(stage.replicas * method.copies));
    threads.push_back(std::to_string(stage.threads));
    replicated = replicated || stage.replicas * method.copies > 1;
    threaded = threaded || stage.threads > 1;
  }
  for (const int device : devices_of(plan, machine))
    devices.push_back('"' + kind + ":" + std::to_string(device) + '"');
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
