// Pixels between our frames, whose rows have no padding, and GStreamer's, whose rows may.
#pragma once

#include <gst/video/video.h>

#include <cstring>

#include "io/source/frame.h"

namespace millrace::io {

/// Copies size and pixels of a mapped RGB or GRAY8 picture; storage is reused.
inline void copy_pixels(const GstVideoFrame& from, Frame& to) {
  to.reshape(GST_VIDEO_FRAME_WIDTH(&from), GST_VIDEO_FRAME_HEIGHT(&from),
             GST_VIDEO_FRAME_N_COMPONENTS(&from));
  const std::size_t row = std::size_t(to.width) * to.channels;
  const auto* rows = static_cast<const std::uint8_t*>(GST_VIDEO_FRAME_PLANE_DATA(&from, 0));
  for (int y = 0; y < to.height; ++y)
    std::memcpy(&to.pixels[y * row], rows + y * GST_VIDEO_FRAME_PLANE_STRIDE(&from, 0), row);
}

/// Copies the pixels of a frame into a buffer of format `info`, which has the frame's size.
inline void copy_pixels(const Frame& from, const GstVideoInfo& info, GstBuffer* to) {
  GstMapInfo map;
  gst_buffer_map(to, &map, GST_MAP_WRITE);
  const std::size_t row = std::size_t(from.width) * from.channels;
  for (int y = 0; y < from.height; ++y)
    std::memcpy(map.data + y * GST_VIDEO_INFO_PLANE_STRIDE(&info, 0), &from.pixels[y * row], row);
  gst_buffer_unmap(to, &map);
}

}  // namespace millrace::io
