#include "io/video/video_writer.h"

#include <stdexcept>  // refusals

#include "io/source/uri.h"
#include "io/video/video_kinds.h"

namespace millrace::io {

std::unique_ptr<VideoWriter> open_video_writer(const VideoWriterOptions& options) {
  if (options.width <= 0 || options.height <= 0 || options.waiting <= 0 ||
      (options.channels != 1 && options.channels != 3)) {
    throw std::runtime_error(options.to + ": a video needs a size and 1 or 3 channels");
  }
  if (split_uri(options.to).scheme == "rtsp") return open_video_server(options);
  return open_video_file(options);
}

}  // namespace millrace::io
