// Feeds frames to a GStreamer pipeline; picks the best installed encoder.
#pragma once

#include <gst/app/gstappsrc.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "io/source/gst_handles.h"
#include "io/source/source_kinds.h"  // rate_or_default
#include "io/video/video_writer.h"

namespace millrace::io {

/// Copies frames into a fixed pool of buffers. push(): one thread at a time.
class VideoFeed {
 public:
  explicit VideoFeed(const VideoWriterOptions& options) : options_(options) {
    gst_video_info_set_format(&info_, format_of(options.channels), options.width, options.height);
    gst_util_double_to_fraction(rate_or_default(options.fps), &info_.fps_n, &info_.fps_d);
    caps_.reset(gst_video_info_to_caps(&info_));
    GstStructure* const config = gst_buffer_pool_get_config(pool_.get());
    gst_buffer_pool_config_set_params(config, caps_.get(), guint(GST_VIDEO_INFO_SIZE(&info_)),
                                      guint(options.waiting), guint(options.waiting));
    if (!gst_buffer_pool_set_config(pool_.get(), config) ||
        !gst_buffer_pool_set_active(pool_.get(), TRUE))
      throw std::runtime_error(options.to + ": no memory for its frames");
  }
  // Buffers in transit keep the pool alive.
  ~VideoFeed() { gst_buffer_pool_set_active(pool_.get(), FALSE); }

  void set_up(GstAppSrc* source) const {
    g_object_set(source, "format", GST_FORMAT_TIME, "block", FALSE, nullptr);
    gst_app_src_set_max_bytes(source, 0);  // the pool is the bound
    gst_app_src_set_caps(source, caps_.get());
  }
  /// False if the frame is dropped, as no buffer is free (with `wait`, it waits for one) or
  /// `source` takes none. `pts` may be GST_CLOCK_TIME_NONE if `source` stamps buffers itself.
  /// Throws std::invalid_argument if `frame` doesn't have the options' size.
  bool push(GstAppSrc* source, const Frame& frame, GstClockTime pts, bool wait = false) {
    require_size(frame);
    GstBuffer* buffer = nullptr;
    GstBufferPoolAcquireParams at_once{};
    at_once.flags = GST_BUFFER_POOL_ACQUIRE_FLAG_DONTWAIT;
    while (gst_buffer_pool_acquire_buffer(pool_.get(), &buffer, &at_once) != GST_FLOW_OK) {
      if (!wait || !takes_more(source)) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    copy_pixels(frame, info_, buffer);
    GST_BUFFER_PTS(buffer) = pts;
    return gst_app_src_push_buffer(source, buffer) == GST_FLOW_OK;
  }

 private:
  /// False once the elements after `source` have failed: no buffer comes back from there.
  static bool takes_more(GstAppSrc* source) {
    const GstOwned<GstPad> out(gst_element_get_static_pad(GST_ELEMENT(source), "src"));
    return gst_pad_get_last_flow_return(out.get()) == GST_FLOW_OK;
  }
  void require_size(const Frame& frame) const {
    if (frame.width != options_.width || frame.height != options_.height ||
        frame.channels != options_.channels || frame.pixels.size() < frame.bytes())
      throw std::invalid_argument(options_.to + ": every frame of a video must have its size");
  }

  const VideoWriterOptions options_;
  GstVideoInfo info_;
  GstOwned<GstCaps> caps_;
  GstOwned<GstBufferPool> pool_{gst_buffer_pool_new()};
};

enum class VideoUse { mp4, mkv, rtsp };

/// Elements from raw video to a muxer's input, or for RTSP to a payloader named pay0. The encoder
/// is named encoder, uses one thread and makes a key frame at least every second. Throws
/// std::runtime_error if none is installed. Call start_gstreamer() first.
std::string encoder_text(const VideoWriterOptions& options, VideoUse use);

/// open_video_writer() for rtsp://.
std::unique_ptr<VideoWriter> open_video_server(const VideoWriterOptions& options);

}  // namespace millrace::io
