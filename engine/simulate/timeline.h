#pragma once

#include <cstddef>
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

const char* terminal_colour(Op op);

/// A line per worker: `width` characters, '#' for computing, '+' for hand-offs, '.' for idling, and
/// the shares in figures. With more than `most` workers, a line is the mean of several neighbours.
std::string utilisation_bars(const Schedule& schedule, const Simulation& simulation, int width = 50,
                             int most = 32);

/// The staircase to scale: a row per worker, each action as wide as its time ("F3-----"), '+' for
/// hand-offs and '.' for idling. A forward is as wide as its name, so only the beginning is shown,
/// up to `columns` characters and `most` workers; the last line gives the scale and what is left
/// out. `colours`: ANSI. Needs Simulation::events.
std::string timeline_text(const Schedule& schedule, const Simulation& simulation, int columns = 120,
                          int most = 32, bool colours = false);

struct TimelineStyle {
  std::string title;               ///< "": none; characters beyond printable ASCII become "?"
  double width = 960;              ///< pixels of the picture
  double until_ms = 0;             ///< 0: the end
  int most_workers = 64;           ///< rows
  std::size_t most_boxes = 20000;  ///< actions, earliest first; the legend says what is left out
};

/// SVG 1.1 that follows the reader's light or dark mode: a row per worker with its utilisation; a
/// box per action, coloured by operation and named where the name fits; a thinner grey box per
/// hand-off; a time axis in milliseconds and a legend. Needs Simulation::events.
std::string timeline_svg(const Schedule& schedule, const Simulation& simulation,
                         const TimelineStyle& style = {});

}  // namespace millrace::engine
