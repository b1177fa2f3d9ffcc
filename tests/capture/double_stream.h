// A device that is none: a thread of its own does what a stream is given, later.
#pragma once

#include <memory>

#include "capture/backend.h"

namespace millrace::capture {

/// Runs recordings on a thread a stream, with random pauses before them if `disturbed`, as a device
/// would: launches return at once, events order streams and nothing else does. A recording repeats
/// operators alone: what the host would do by now has no part in a launch.
std::unique_ptr<Backend> make_double_stream(bool disturbed);

/// Bodies refused from now on, as work that can't be recorded; for tests of what happens then.
void refuse_recording(bool refuse);

}  // namespace millrace::capture
