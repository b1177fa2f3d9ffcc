// How far into its stream a file's demuxer got, whatever the track.
#pragma once

#include <atomic>  // written by streaming threads
#include <memory>  // shared with callbacks

#include <gst/gst.h>  // pipelines, time

namespace millrace::io {

/// Watches what every demuxer of a pipeline hands on: sound that outlasts the pictures shows that
/// a file whose pictures end early is whole. Reading is thread-safe.
class GstExtent {
 public:
  /// `pipeline` in state NULL; it may outlive this object.
  explicit GstExtent(GstElement* pipeline);
  /// End of the last buffer of any track, 0 before the first.
  GstClockTime reached() const { return reached_->load(); }

 private:
  std::shared_ptr<std::atomic<GstClockTime>> reached_;
};

}  // namespace millrace::io
