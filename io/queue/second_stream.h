// Targets from another stream, such as a second camera.
#pragma once

#include <memory>

#include "io/queue/resizer.h"
#include "io/source/told_source.h"

namespace millrace::io {

/// The target of a frame is a frame of `source`, scaled to `size` (whose sides are set): the one of
/// the same number, or, if `live`, the newest, unless it is more than two frames old. There is none
/// if that stream has ended, hangs or could not decode it.
Teller stream_teller(std::unique_ptr<Source> source, const ResizerOptions& size, bool live);

}  // namespace millrace::io
