// The table of named schedules. CMake collects an entry from each file in generators/. Names, help,
// options and the planner read the table.
#pragma once

#include <string>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

struct ScheduleEntry {
  const char* name;
  const char* summary;  ///< one line
  Schedule (*generate)(const ScheduleSpec&);

  // Which options it takes. Others are ignored, but replicas are refused.
  bool minibatches = false;     ///< microbatches: samples an update; else one
  bool virtual_stages = false;  ///< stages a worker
  bool vertical_sync = false;
  bool replicas = false;

  // What the planner must know. Tests check the counts against the schedule itself.
  bool flushes = false;         ///< the pipeline runs empty at each update
  bool replicates = false;      ///< a stage may have several devices that take turns
  bool fits_minibatch = false;  ///< at most a minibatch of samples may be in flight
  /// Weight versions that a stage keeps `depth` stages from the end, itself included: N - i for
  /// stage i of N.
  int (*versions_kept)(int depth) = [](int) { return 1; };
  /// The most samples that such a stage, of `stages`, keeps activations of; 1 if a sample goes
  /// backward right after its forward, or alone.
  int (*samples_kept)(int depth, int stages, int microbatches) = [](int, int, int) { return 1; };
};

/// Every entry, by name.
const std::vector<ScheduleEntry>& schedule_table();

/// Throws std::invalid_argument for a name that has no entry.
const ScheduleEntry& schedule_entry(const std::string& name);

/// Adds an entry, whose strings must outlive the table, before any other thread reads the table.
/// Throws std::invalid_argument for a name that is taken.
void register_schedule(const ScheduleEntry& entry);

}  // namespace millrace::engine
