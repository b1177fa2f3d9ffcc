// The recorder of a CPU core. make_recorder() is its only caller.
#pragma once

#include "capture/recorder.h"

namespace millrace::capture {

std::unique_ptr<Recorder> make_cpu_recorder();

}  // namespace millrace::capture
