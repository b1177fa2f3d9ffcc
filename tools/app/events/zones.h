#pragma once

#include <vector>

#include "tools/app/events/background.h"
#include "tools/app/events/event.h"

namespace millrace::app {

/// The sensitivity of each cell, by its centre: the highest of its zones, 0 outside all of them (no
/// zones: 1 everywhere) and in ignored ones.
Cells sensitivity_of_cells(const Reduced& like, const std::vector<Zone>& zones,
                           const std::vector<Zone>& ignored);

}  // namespace millrace::app
