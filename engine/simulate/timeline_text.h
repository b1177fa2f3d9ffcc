// A simulation in a terminal: who did what when, and how busy everybody was.
#pragma once

#include <string>

#include "engine/simulate/simulator.h"

namespace millrace::engine {

/// A line a worker: 'width' characters, '#' for computing, '+' for handing over, '.' for idling,
/// and the shares in figures. Beyond `most` workers each line is the mean of as many neighbours.
std::string utilisation_bars(const Schedule& schedule, const Simulation& simulation, int width = 50,
                             int most = 32);

/// The staircase to scale: a row a worker, each action as long as it took ("F3-----"), '+' for
/// handing over and '.' for idling. It shows the beginning, as far as `columns` characters and
/// `most` workers go, with a forward as wide as its name; the last line says what a character
/// stands for and what is left out. `colours`: with a terminal's. Wants Simulation::events.
std::string timeline_text(const Schedule& schedule, const Simulation& simulation, int columns = 120,
                          int most = 32, bool colours = false);

}  // namespace millrace::engine
