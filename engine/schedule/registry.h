// The table of named schedules. CMake collects an entry from each file in generators/.
#pragma once

#include <string>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

struct ScheduleEntry {
  const char* name;
  const char* summary;  ///< one line
  Schedule (*generate)(const ScheduleSpec&);

  // Options it supports; make_schedule() ignores the others, but refuses replicas.
  bool minibatches = false;     ///< microbatches: samples per update; otherwise 1
  bool virtual_stages = false;  ///< stages per worker
  bool vertical_sync = false;
  bool replicas = false;
  bool deep_supervision = false;
  bool recomputes = true;  ///< a backward uses the weights of its forward, or of its recompute

  // For the planner. Tests check the counts against the schedule itself.
  bool flushes = false;         ///< the pipeline runs empty at each update
  bool replicates = false;      ///< a stage may have several devices that take turns
  bool fits_minibatch = false;  ///< at most a minibatch of samples may be in flight
  /// Weight versions that a stage holds. `depth`: stages from this one to the last, both included.
  int (*versions_kept)(int depth) = [](int) { return 1; };
  /// Samples whose activations such a stage, of `stages`, holds at most; 1 if each goes backward
  /// right after its forward, or alone.
  int (*samples_kept)(int depth, int stages, int microbatches) = [](int, int, int) { return 1; };
  /// With recompute: samples that hold full activations, recomputed but not yet backpropagated.
  int (*recomputed_kept)(int depth, int stages, int microbatches) = [](int, int, int) { return 1; };
};

/// Sorted by name.
const std::vector<ScheduleEntry>& schedule_table();

std::vector<std::string> schedule_names();

/// Throws std::invalid_argument for an unknown name.
const ScheduleEntry& schedule_entry(const std::string& name);

/// Adds an entry, whose strings must outlive the table. Call it before any other thread reads the
/// table. Throws std::invalid_argument if the name is taken.
void register_schedule(const ScheduleEntry& entry);

/// Uses an entry of the table, or a CSV file, which then sets the number of microbatches.
/// Throws std::invalid_argument for an unknown name, stages < 1, or options that the schedule
/// cannot have. Ignores options that it does not use.
Schedule make_schedule(const ScheduleSpec& spec);
inline Schedule make_schedule(const std::string& name, ScheduleSpec spec) {
  spec.schedule = name;
  return make_schedule(spec);
}

}  // namespace millrace::engine
