// Builds the GStreamer pipeline of a URI: decoder, converter, appsink.
#pragma once

#include <gst/app/gstappsink.h>

#include "io/source/gst_handles.h"
#include "io/source/source.h"

namespace millrace::io {

/// A pipeline in state NULL. `sink` and `converter` live as long as `pipeline`.
struct GstParts {
  GstOwned<GstElement> pipeline;
  GstAppSink* sink = nullptr;
  GstElement* converter = nullptr;  ///< null if the user's own text ends in an appsink
};

/// Initializes GStreamer once per process. Any thread. Throws SourceError.
void start_gstreamer();

/// `sink` delivers unscaled RGB or grey frames as fast as they are taken. Throws SourceError.
GstParts build_pipeline(const SourceOptions& options);

}  // namespace millrace::io
