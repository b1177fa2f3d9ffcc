// Step programs as a Backend.
#pragma once

#include <memory>

#include "capture/backend.h"

namespace millrace::capture {

/// A CPU core: recordings are step programs, run on the thread that launches them.
std::unique_ptr<Backend> make_core_backend();

}  // namespace millrace::capture
