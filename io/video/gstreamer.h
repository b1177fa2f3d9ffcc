// GStreamer lies in a module of its own, libmillrace_gstreamer.so, so that a program runs where it
// is not installed.
#pragma once

#include "io/source/source.h"
#include "io/video/video_writer.h"

namespace millrace::io {

struct GStreamer {
  std::unique_ptr<Source> (*open)(const SourceOptions& options, bool live, bool wait);
  std::unique_ptr<VideoWriter> (*open_writer)(const VideoWriterOptions& options);
  std::string (*version)();
};
extern "C" const GStreamer millrace_gstreamer;  ///< in the module

}  // namespace millrace::io
