// A schedule laid out over time, for people to look at.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// A tick of a worker's time: a forward, a backward or a part of it, and perhaps the update that
/// follows at once.
struct Cell {
  Action action;
  bool updates = false;
};

/// What each worker does at each tick, if every action but the update takes one tick, the update
/// none, and nobody waits longer than for data and for a free slot.
struct Staircase {
  std::vector<std::vector<std::optional<Cell>>> rows;  ///< [worker][tick]; empty: a bubble
  std::vector<std::int64_t> activations;               ///< samples a stage's worker keeps at most

  /// Idle share of all workers' ticks: (p-1)/(m+p-1) for gpipe with p stages, m samples a
  /// minibatch.
  double bubble() const;
};

/// Lays out `samples` samples. Throws std::logic_error if the schedule deadlocks.
Staircase draw_staircase(const Schedule& schedule, std::int64_t samples);

/// PyTorch's letters: F, B, and I and W for a backward's two parts; R recomputes, U updates.
char op_letter(Op op);

/// "F3", "B4(2)" (gradient of sample 2), "F3^1" (at version 1), "U3"; with its stage, "2F3".
std::string action_text(const Action& action, bool with_stage);

/// Whether the pipeline runs empty at each update, which then needs no place of its own in the
/// order.
bool flushes(const Schedule& schedule);

}  // namespace millrace::engine
