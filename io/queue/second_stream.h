// Targets from another stream, such as a second camera.
#pragma once

#include <memory>

#include "io/queue/resizer.h"
#include "io/source/source.h"

namespace millrace::io {

/// The target of a frame is the frame of `source` with the same number or, if `live`, the newest
/// one unless it is more than two frames old; scaled to `size` (with sides set). None if that
/// stream has ended, hangs or could not decode it.
Teller stream_teller(std::unique_ptr<Source> source, const ResizerOptions& size, bool live);

}  // namespace millrace::io
