// What the files of the extension module share.
#pragma once

#include <pybind11/pybind11.h>

namespace millrace::python {

/// Schedule, verifier, simulator, planner.
void bind_schedules(pybind11::module_& m);

}  // namespace millrace::python
