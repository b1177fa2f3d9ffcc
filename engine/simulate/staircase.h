// A schedule laid out over time, for people to look at.
#pragma once

#include <optional>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// A tick of a worker's time: a forward, a backward or a part of it, and perhaps the update that
/// follows at once.
struct Cell {
  Action action;
  bool updates = false;
};

/// What each worker does at each tick, if every action but the update takes one tick and the update
/// none, and nobody waits longer than for data and for a free slot.
struct Staircase {
  std::vector<std::vector<std::optional<Cell>>> rows;  ///< [worker][tick]; empty: a bubble
  std::vector<std::int64_t> activations;               ///< the most samples a stage's worker keeps

  /// Idle share of all workers' ticks: (p-1)/(m+p-1) for gpipe with p stages, m samples a
  /// minibatch.
  double bubble() const;
};

/// Lays out `samples` samples. Throws std::logic_error if the schedule deadlocks.
Staircase draw_staircase(const Schedule& schedule, std::int64_t samples);

/// What a terminal colours an operation with.
const char* terminal_colour(Op op);

}  // namespace millrace::engine
