#include "engine/plan/plan_text.h"

#include <algorithm>

#include "engine/format.h"
#include "engine/schedule/registry.h"

namespace millrace::engine::plan {
namespace {

std::string method_text(const Method& method) {
  std::string text = method.schedule;
  if (schedule_entry(method.schedule).minibatches)
    text += format(", %d microbatches", method.microbatches);
  if (method.virtual_stages > 1) text += format(", %d stages a worker", method.virtual_stages);
  if (method.recompute) text += ", recomputing";
  if (method.tensor > 1) text += format(", tensor %d", method.tensor);
  if (method.copies > 1)
    text += format(", %d copies%s", method.copies, method.copies_inside ? " side by side" : "");
  return text;
}

/// "[0, 4]": `text_of` each value.
template <class Value, class Text>
std::string list(const std::vector<Value>& values, const Text& text_of) {
  std::string text;
  for (const Value& value : values) text += (text.empty() ? "" : ", ") + text_of(value);
  return "[" + text + "]";
}

std::string cut_list(const std::vector<Stage>& stages) {
  return list(begins_of(stages), [](int begin) { return std::to_string(begin); });
}

std::string cut_text(const std::vector<Stage>& stages) {
  const auto width = [](const Stage& stage) {
    return std::to_string(stage.replicas) +
           (stage.threads > 1 ? "x" + std::to_string(stage.threads) : "");
  };
  const bool wide = std::ranges::any_of(stages, [](const Stage& s) { return s.places() > 1; });
  return "cut " + cut_list(stages) + (wide ? ", replicas " + list(stages, width) : "");
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
    std::string modules = std::to_string(stage.begin);
    if (stage.end - stage.begin > 1) modules += "-" + std::to_string(stage.end - 1);
    text += format("%-5zu %-10s %8d %7d %7.3f %7.3f %7.3f %7.3f %10.3f %9s %8d %7d %4ld  %s%s\n", i,
                   modules.c_str(), stage.replicas, stage.threads, time.work, time.agree,
                   time.arrive, time.leave, time.period(model.machine().overlap),
                   bytes_text(memory.total()).c_str(), memory.versions, memory.samples,
                   plan.outcome.gradient_age[i], profile.modules[stage.begin].name.c_str(),
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
  using Part = std::pair<double, const char*>;
  const auto [ms, part] = std::ranges::max({Part{time.work, "its work"},
                                            {time.agree, "agreeing on gradients"},
                                            {time.arrive, "messages upstream"},
                                            {time.leave, "messages downstream"}},
                                           {}, &Part::first);
  const int used = places_of(plan.cut);
  return format(
      "why       stage %d sets the pace, by %s: %.3f of %.3f ms a sample; T over its %d places is "
      "%.3f ms\n",
      plan.cut.bottleneck, part, ms, plan.cut.period_ms, used, plan.outcome.T_ms / used);
}

std::string idle_text(const Plan& plan, const Request& request) {
  const int idle =
      request.machine.devices() - places_of(plan.cut) * plan.method.copies * plan.method.tensor;
  if (idle <= 0) return "";
  const int slowest = plan.cut.bottleneck;
  const Stage& stage = plan.cut.stages[slowest];
  const std::string why =
      request.stages > 0 ? format("--stages asks for %d", request.stages)
      : stage.end - stage.begin == 1
          ? format("stage %d sets the pace and is one module, uncut", slowest)
          : "with more stages the slowest would not be quicker, hand-offs counted";
  return format("idle      %d of %d devices: %s\n", idle, request.machine.devices(), why.c_str());
}

std::string others_text(const std::vector<Plan>& plans) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t i = 1; i < plans.size() && i <= most; ++i) {
    const Outcome& outcome = plans[i].outcome;
    text += format(
        "other     %s, %zu stages: %.4g frames a second (%+.1f %%), latency %.3g ms, "
        "memory %s\n",
        method_text(plans[i].method).c_str(), plans[i].cut.stages.size(), outcome.frames_a_second,
        100 * (outcome.frames_a_second / plans[0].outcome.frames_a_second - 1), outcome.latency_ms,
        bytes_text(outcome.peak_bytes).c_str());
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
        const int place = (stage.place - first + replica * stage.threads) % (row - method.idle);
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
  std::string text = format(
      "network   %s, %zu modules, on %d devices\nplan      %s, %zu stages, %s\n",
      profile.network.c_str(), profile.modules.size(), request.machine.devices(),
      method_text(plan.method).c_str(), plan.cut.stages.size(), cut_text(plan.cut.stages).c_str());
  text += stage_rows(profile, model, plan) + why_text(model, plan) + idle_text(plan, request) +
          others_text(plans);
  text +=
      format("expect    %.4g frames a second, latency %.4g ms, at most %s a device",
             outcome.frames_a_second, outcome.latency_ms, bytes_text(outcome.peak_bytes).c_str());
  if (request.machine.memory_bytes > 0) text += " of " + bytes_text(request.machine.memory_bytes);
  if (outcome.bubble > 0) text += format(", bubble %.3g of the work", outcome.bubble);
  text += format(", gradients up to %ld frames old\n", std::ranges::max(outcome.gradient_age));
  return text + rule_text(profile, plan, request.fps);
}

std::string pipeline_toml(const Plan& plan, const Machine& machine, const std::string& kind) {
  const Method& method = plan.method;
  const ScheduleEntry& entry = schedule_entry(method.schedule);
  const std::vector<Stage>& stages = plan.cut.stages;
  const auto device = [&](int number) { return '"' + kind + ":" + std::to_string(number) + '"'; };
  std::string text = "[pipeline]\nschedule = \"" + method.schedule + "\"\n";
  text += format("stages = %zu\n", stages.size());
  text += "cut = " + cut_list(stages) + "\n";
  text += "devices = " + list(devices_of(plan, machine), device) + "\n";
  if (entry.minibatches) text += format("microbatches = %d\n", method.microbatches * method.copies);
  if (entry.virtual_stages) text += format("virtual_stages = %d\n", method.virtual_stages);
  // Every stage has one by default.
  const auto add = [&](const char* key, const auto& count, const char* remark) {
    if (std::ranges::all_of(stages, [&](const Stage& stage) { return count(stage) == 1; })) return;
    const auto text_of = [&](const Stage& stage) { return std::to_string(count(stage)); };
    text += key + (" = " + list(stages, text_of)) + remark + "\n";
  };
  add(
      "replicas", [&](const Stage& stage) { return stage.replicas * method.copies; },
      entry.replicas ? "" : "  # planned only: run has no replicas of this schedule");
  if (method.recompute) text += "recompute = true\n";
  add(
      "threads", [](const Stage& stage) { return stage.threads; }, "");
  if (method.tensor > 1) {
    text += format("tensor = %d  # mpirun: so many ranks for each device above, on the next ones\n",
                   method.tensor);
  }
  return text;
}

}  // namespace millrace::engine::plan
