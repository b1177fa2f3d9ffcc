// Refuses pictures of a stream that would fill the memory, before they are decoded.
#pragma once

#include <cstdint>

#include "io/source/gst_handles.h"

namespace millrace::io {

/// Watches what the decoders get that `pipeline` has or will have. If that says more than `most`
/// pixels, or a picture's bytes do not end, an error is posted and the data is dropped. Call it
/// before the pipeline starts.
void bound_pictures(GstElement* pipeline, std::int64_t most);

}  // namespace millrace::io
