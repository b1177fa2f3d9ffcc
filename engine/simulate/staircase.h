#pragma once

#include <optional>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// A tick of a worker: a forward, a backward or a part of it, and perhaps the update after it.
struct Cell {
  Action action;
  bool updates = false;
};

/// What each worker does at each tick, if every action takes one tick and an update none, and
/// workers wait only for data and free slots.
struct Staircase {
  std::vector<std::vector<std::optional<Cell>>> rows;  ///< [worker][tick]; empty: a bubble
  std::vector<std::int64_t> activations;               ///< the most samples a stage's worker keeps

  /// Idle share of all ticks: (p-1)/(m+p-1) for gpipe with p stages, m samples per minibatch.
  double bubble() const;
};

/// Throws std::logic_error if the schedule deadlocks.
Staircase draw_staircase(const Schedule& schedule, std::int64_t samples);

/// An ANSI escape sequence.
const char* terminal_colour(Op op);

}  // namespace millrace::engine
