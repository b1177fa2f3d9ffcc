// The best encoder that is installed, as GStreamer pipeline text.
#pragma once

#include <string>

#include "io/video/video_writer.h"

namespace millrace::io {

enum class VideoUse { mp4, mkv, rtsp };

/// Elements from raw video to a muxer's input, or for RTSP to a payloader named pay0. The encoder
/// is named encoder, runs on one thread and makes a key frame at least every second. Throws
/// std::runtime_error if none is installed. Call start_gstreamer() first.
std::string encoder_text(const VideoWriterOptions& options, VideoUse use);

/// The writer for rtsp:// of open_video_writer().
std::unique_ptr<VideoWriter> open_video_server(const VideoWriterOptions& options);

}  // namespace millrace::io
