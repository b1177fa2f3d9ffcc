// What pictures can be encoded with here, as text for GStreamer.
#pragma once

#include <string>  // pipeline text

#include "io/video/video_writer.h"

namespace millrace::io {

enum class VideoUse { mp4, mkv, rtsp };

/// Elements from raw video to what a muxer takes, or for RTSP a payloader named pay0: with the best
/// encoder, named encoder, that is installed, on one thread, a key frame at least every second.
/// Throws std::runtime_error if there is none. Call start_gstreamer() first.
std::string encoder_text(const VideoWriterOptions& options, VideoUse use);

}  // namespace millrace::io
