#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/simulate/simulator.h"

namespace millrace::engine {

/// A worker's tick: a forward, a backward or one of its parts, and perhaps the update after it.
struct Cell {
  Action action;
  bool updates = false;

  std::string text(bool with_stage) const {
    return action_text(action, with_stage) + (updates ? "U" : "");
  }
};

/// What each worker does at each tick, if every action takes one tick and an update none, and
/// workers wait only for data and free slots.
struct Staircase {
  std::vector<std::vector<std::optional<Cell>>> rows;  ///< [worker][tick]; empty: a bubble
  std::vector<std::int64_t> activations;               ///< [worker]: most samples held

  /// Idle share of all ticks: (p-1)/(m+p-1) for gpipe with p stages, m samples per minibatch.
  double bubble() const;
};

/// Throws std::logic_error if the schedule deadlocks.
Staircase draw_staircase(const Schedule& schedule, std::int64_t samples);

/// SVG 1.1 that follows the reader's light or dark mode: a row per worker with its utilisation; a
/// box per action, coloured by operation and named where the name fits; a thinner grey box per
/// hand-off; a time axis in milliseconds and a legend, which says what is left out: workers from
/// the 65th on, actions from the 20,001st on. `title`: "" for none; characters beyond printable
/// ASCII become "?". `until_ms`: 0 for the end. Needs Simulation::events.
std::string timeline_svg(const Schedule& schedule, const Simulation& simulation,
                         const std::string& title = "", double until_ms = 0);

}  // namespace millrace::engine
