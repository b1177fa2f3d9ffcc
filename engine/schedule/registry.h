// The table of named schedules, for names, help, options and the planner. CMake collects an entry
// from each file in generators/.
#pragma once

#include <string>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

struct ScheduleEntry {
  const char* name;
  const char* summary;  ///< one line
  Schedule (*generate)(const ScheduleSpec&);

  // Options. Others are ignored, but replicas are refused.
  bool minibatches = false;     ///< microbatches: samples per update; else one
  bool virtual_stages = false;  ///< stages per worker
  bool vertical_sync = false;
  bool replicas = false;

  // For the planner. Tests check the counts against the schedule itself.
  bool flushes = false;         ///< the pipeline runs empty at each update
  bool replicates = false;      ///< a stage may have several devices that take turns
  bool fits_minibatch = false;  ///< at most a minibatch of samples may be in flight
  /// Weight versions that a stage keeps. `depth`: stages up to the end, itself included.
  int (*versions_kept)(int depth) = [](int) { return 1; };
  /// The most samples that such a stage, of `stages`, keeps activations of; 1 if a sample goes
  /// backward right after its forward, or alone.
  int (*samples_kept)(int depth, int stages, int microbatches) = [](int, int, int) { return 1; };
  /// Of those, with recompute, how many have whole activations: recomputed, and not yet used.
  int (*recomputed_kept)(int depth, int stages, int microbatches) = [](int, int, int) { return 1; };
};

/// By name.
const std::vector<ScheduleEntry>& schedule_table();

/// Throws std::invalid_argument for an unknown name.
const ScheduleEntry& schedule_entry(const std::string& name);

/// Adds an entry, whose strings must outlive the table. Call it before any other thread reads the
/// table. Throws std::invalid_argument if the name is taken.
void register_schedule(const ScheduleEntry& entry);

}  // namespace millrace::engine
