// A build without GStreamer writes no video.
#include <stdexcept>  // refusal

#include "io/video/video_writer.h"

namespace millrace::io {

std::unique_ptr<VideoWriter> open_video_writer(const VideoWriterOptions& options) {
  throw std::runtime_error(options.to + ": this build has no GStreamer and writes no video");
}

}  // namespace millrace::io
