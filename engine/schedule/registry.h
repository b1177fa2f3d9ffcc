// The table of schedules that have a name. An entry stands beside its generator, in a file of
// generators/; names, help, options and the planner read the table.
#pragma once

#include <string>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

struct ScheduleEntry {
  const char* name;
  const char* summary;  ///< one line, for people who choose
  Schedule (*generate)(const ScheduleSpec&);

  // Which options it takes. Replicas of one that has none are refused, the rest is ignored.
  bool minibatches = false;     ///< microbatches: samples an update; else each sample has its own
  bool virtual_stages = false;  ///< stages a worker
  bool vertical_sync = false;
  bool replicas = false;

  // What planning knows of it. Tests hold the counts against the schedule itself.
  bool flushes = false;         ///< the pipeline runs empty at each update
  bool replicates = false;      ///< a stage may have several devices that take turns
  bool fits_minibatch = false;  ///< as many samples in flight as a minibatch has, at most
  /// Versions of its weights that a stage keeps whose samples are `depth` deep in flight: the
  /// stage's own and those of each stage downstream, N - i for stage i of N.
  int (*versions_kept)(int depth) = [](int) { return 1; };
  /// Samples that such a stage, of `stages`, keeps saved activations of, at most; 1 where a sample
  /// goes backward right after its forward, or alone.
  int (*samples_kept)(int depth, int stages, int microbatches) = [](int, int, int) { return 1; };
};

/// Every entry, by name.
const std::vector<ScheduleEntry>& schedule_table();

/// Throws std::invalid_argument for a name that has no entry.
const ScheduleEntry& schedule_entry(const std::string& name);

/// Adds an entry of the caller's, whose strings outlive the program. Before any other thread reads
/// the table. Throws std::invalid_argument for a name that is taken.
void register_schedule(const ScheduleEntry& entry);

}  // namespace millrace::engine
