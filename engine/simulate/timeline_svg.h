// A simulation's time line as a picture for a document.
#pragma once

#include <cstddef>
#include <string>

#include "engine/simulate/simulator.h"

namespace millrace::engine {

struct TimelineStyle {
  std::string title;               ///< "": none; what is no printable ASCII becomes "?"
  double width = 960;              ///< pixels of the whole picture
  double until_ms = 0;             ///< 0: the end
  int most_workers = 64;           ///< rows
  std::size_t most_boxes = 20000;  ///< actions, earliest first; what is left out is said
};

/// SVG 1.1 with a style sheet that follows the reader's light or dark mode: a row a worker with its
/// utilisation, a box an action, coloured by its operation and named where the name fits, a thinner
/// grey one a hand-off; below them the time in milliseconds and a legend. Wants Simulation::events.
std::string timeline_svg(const Schedule& schedule, const Simulation& simulation,
                         const TimelineStyle& style = {});

}  // namespace millrace::engine
