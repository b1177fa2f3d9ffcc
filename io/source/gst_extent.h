// How far a file's demuxer got, on any track.
#pragma once

#include <atomic>
#include <memory>

#include <gst/gst.h>

namespace millrace::io {

/// Watches the output of a pipeline's demuxers. If sound outlasts the pictures, a file whose
/// pictures end early is whole, not truncated. Reading is thread-safe.
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
