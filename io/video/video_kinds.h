// The kinds of VideoWriter that open_video_writer() chooses from; each in a file of its own.
#pragma once

#include <memory>  // std::unique_ptr<VideoWriter>

#include "io/video/video_writer.h"

namespace millrace::io {

std::unique_ptr<VideoWriter> open_video_file(const VideoWriterOptions& options);
std::unique_ptr<VideoWriter> open_video_server(const VideoWriterOptions& options);

}  // namespace millrace::io
