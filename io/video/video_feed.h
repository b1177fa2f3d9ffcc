// Frames into a GStreamer pipeline without ever waiting for it.
#pragma once

#include <atomic>  // counts

#include <gst/app/gstappsrc.h>  // where frames go in
#include <gst/video/video.h>    // rows

#include "io/source/gst_handles.h"
#include "io/video/video_writer.h"

namespace millrace::io {

/// A few buffers made beforehand. A frame is copied into one that is free and handed over; when the
/// pipeline has done with it, it is free again. None free: the frame is dropped. push() by one
/// thread at a time, counts by any.
class VideoFeed {
 public:
  explicit VideoFeed(const VideoWriterOptions& options);
  ~VideoFeed();
  VideoFeed(const VideoFeed&) = delete;
  VideoFeed& operator=(const VideoFeed&) = delete;

  /// Tells `source` what will come.
  void set_up(GstAppSrc* source) const;
  /// `pts` may be GST_CLOCK_TIME_NONE if `source` stamps by itself. Throws std::invalid_argument
  /// if `frame` has not the size agreed on.
  void push(GstAppSrc* source, const Frame& frame, GstClockTime pts);

  std::int64_t written() const { return written_.load(); }
  std::int64_t dropped() const { return dropped_.load(); }

 private:
  void require_size(const Frame& frame) const;
  void copy(const Frame& frame, GstBuffer* buffer) const;

  const VideoWriterOptions options_;
  GstVideoInfo info_;
  GstOwned<GstCaps> caps_;
  GstBufferPool* pool_ = nullptr;
  std::atomic<std::int64_t> written_{0};
  std::atomic<std::int64_t> dropped_{0};
};

}  // namespace millrace::io
