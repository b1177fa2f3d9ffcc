#pragma once

#include <cstddef>
#include <string>

#include "engine/simulate/simulator.h"

namespace millrace::engine {

/// A line per worker: `width` characters, '#' for computing, '+' for hand-offs, '.' for idling, and
/// the shares in figures. With more than `most` workers, a line is the mean of several neighbours.
std::string utilisation_bars(const Schedule& schedule, const Simulation& simulation, int width = 50,
                             int most = 32);

/// The staircase to scale: a row per worker, each action as wide as it took ("F3-----"), '+' for
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
/// hand-off; below them the time in milliseconds and a legend. Needs Simulation::events.
std::string timeline_svg(const Schedule& schedule, const Simulation& simulation,
                         const TimelineStyle& style = {});

}  // namespace millrace::engine
