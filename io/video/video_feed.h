// Frames into a GStreamer pipeline without ever waiting for it.
#pragma once

#include <atomic>

#include <gst/app/gstappsrc.h>
#include <gst/video/video.h>

#include "io/source/gst_handles.h"
#include "io/video/video_writer.h"

namespace millrace::io {

/// Copies frames into a fixed pool of buffers. If none is free, the frame is dropped. push() is for
/// one thread at a time; the counts are thread-safe.
class VideoFeed {
 public:
  explicit VideoFeed(const VideoWriterOptions& options);
  ~VideoFeed();
  VideoFeed(const VideoFeed&) = delete;
  VideoFeed& operator=(const VideoFeed&) = delete;

  /// Sets the caps and bounds of `source`.
  void set_up(GstAppSrc* source) const;
  /// `pts` may be GST_CLOCK_TIME_NONE if `source` stamps buffers itself. Throws
  /// std::invalid_argument if `frame` does not have the options' size.
  void push(GstAppSrc* source, const Frame& frame, GstClockTime pts);

  std::int64_t written() const { return written_.load(); }
  std::int64_t dropped() const { return dropped_.load(); }

 private:
  void require_size(const Frame& frame) const;

  const VideoWriterOptions options_;
  GstVideoInfo info_;
  GstOwned<GstCaps> caps_;
  GstBufferPool* pool_ = nullptr;
  std::atomic<std::int64_t> written_{0};
  std::atomic<std::int64_t> dropped_{0};
};

}  // namespace millrace::io
