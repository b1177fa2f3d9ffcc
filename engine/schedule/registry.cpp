#include "engine/schedule/registry.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "engine/schedule/entries.h"  // CMake writes it: ENTRY(name) for each generators/name.cpp
#include "engine/schedule/schedule_csv.h"

namespace millrace::engine {
namespace schedules {

#define MILLRACE_DECLARE(entry) extern const ScheduleEntry entry;
MILLRACE_SCHEDULES(MILLRACE_DECLARE)

}  // namespace schedules

namespace {

using Table = std::vector<ScheduleEntry>;

void add(Table& table, const ScheduleEntry& entry) {
  const std::string_view name = entry.name;
  const auto place = std::ranges::lower_bound(table, name, {}, &ScheduleEntry::name);
  if (place != table.end() && place->name == name)
    throw std::invalid_argument("there is a schedule " + std::string(name) + " already");
  table.insert(place, entry);
}

Table& table() {
  static Table all = [] {
    Table all;
#define MILLRACE_ADD(entry) add(all, schedules::entry);
    MILLRACE_SCHEDULES(MILLRACE_ADD)
    return all;
  }();
  return all;
}

void refuse_replicas(const ScheduleSpec& spec) {
  if (spec.replicas.empty()) return;
  std::string names;
  for (const ScheduleEntry& entry : table()) {
    if (entry.replicas) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw std::invalid_argument(spec.schedule + " has no replicated stages (" + names + " has)");
}

void require_options(const ScheduleEntry& entry, const ScheduleSpec& spec) {
  if (spec.recompute && !entry.recomputes)
    throw std::invalid_argument(spec.schedule +
                                " can't recompute: its backward needs activations "
                                "at its forward's weights, which are gone");
  if (!entry.replicas) refuse_replicas(spec);
  if (entry.fits_minibatch && spec.microbatches < spec.stages) {
    throw std::invalid_argument(spec.schedule + " needs at least as many microbatches as stages (" +
                                std::to_string(spec.stages) + "), so that two versions are enough");
  }
}

}  // namespace

const std::vector<ScheduleEntry>& schedule_table() {
  return table();
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleEntry& entry : table()) names.push_back(entry.name);
  return names;
}

const ScheduleEntry& schedule_entry(const std::string& name) {
  for (const ScheduleEntry& entry : table()) {
    if (entry.name == name) return entry;
  }
  throw std::invalid_argument("unknown schedule \"" + name + "\"");
}

void register_schedule(const ScheduleEntry& entry) {
  add(table(), entry);
}

Schedule make_schedule(const ScheduleSpec& spec) {
  if (spec.stages < 1) throw std::invalid_argument("a schedule needs at least 1 stage");
  Schedule schedule;
  if (is_schedule_file(spec.schedule)) {
    refuse_replicas(spec);
    schedule = read_schedule_csv(spec.schedule);
    if (schedule.stages != spec.stages) {
      throw std::invalid_argument(spec.schedule + ": has " + std::to_string(schedule.stages) +
                                  " stages, not " + std::to_string(spec.stages));
    }
  } else {
    const ScheduleEntry& entry = schedule_entry(spec.schedule);
    require_options(entry, spec);
    schedule = entry.generate(spec);
    if (entry.deep_supervision && spec.deep_supervision) add_deep_supervision(schedule);
  }
  schedule.name = spec.schedule;
  if (spec.recompute) add_recompute(schedule);
  return schedule;
}

}  // namespace millrace::engine
