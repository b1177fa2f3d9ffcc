// Targets that another stream brings: a second camera.
#pragma once

#include <memory>  // tellers

#include "io/queue/resizer.h"
#include "io/source/told_source.h"

namespace millrace::io {

/// The target of a frame is a frame of `source`, at `size` (both known): of the same number, or,
/// `live`, the newest that has come, unless that is more than two frames old. There is none where
/// that stream has ended, hangs or could not decode it.
std::unique_ptr<Teller> stream_teller(std::unique_ptr<Source> source, const ResizerOptions& size,
                                      bool live);

}  // namespace millrace::io
