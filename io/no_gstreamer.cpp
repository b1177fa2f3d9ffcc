#include <stdexcept>

#include "io/source/source_kinds.h"
#include "io/video/video_writer.h"

namespace millrace::io {
namespace {

constexpr const char* kMissing =
    "GStreamer is missing; on Debian: apt install gstreamer1.0-plugins-good gstreamer1.0-libav "
    "libgstrtspserver-1.0-0";

}  // namespace

std::unique_ptr<Source> open_gstreamer(const SourceOptions& options, bool) {
  throw source_error(options, kMissing);
}

std::string gstreamer_version() {
  return "";
}

std::unique_ptr<VideoWriter> open_video_writer(const VideoWriterOptions& options) {
  throw std::runtime_error(options.to + ": " + kMissing);
}

}  // namespace millrace::io
