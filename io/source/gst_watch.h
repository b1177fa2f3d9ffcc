// What is watched in a running pipeline: its errors, how far a file got, pictures that are too
// large.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "io/source/gst_handles.h"
#include "io/source/source.h"

namespace millrace::io {

/// Watches what the decoders get that `pipeline` has or will have. If that says more than `most`
/// pixels, or a picture's bytes do not end, an error is posted and the data is dropped. Call it
/// before the pipeline starts.
void bound_pictures(GstElement* pipeline, std::int64_t most);

using SharedTime = std::shared_ptr<std::atomic<GstClockTime>>;

/// The end of the last buffer of any track that a demuxer of `pipeline`, in state NULL, has given;
/// 0 before the first. If sound outlasts the pictures, a file whose pictures end early is whole.
SharedTime watch_extent(GstElement* pipeline);

/// The first error on a pipeline's bus, in one line. Thread-bound.
class GstTrouble {
 public:
  GstTrouble() = default;
  explicit GstTrouble(GstElement* pipeline) : bus_(gst_element_get_bus(pipeline)) {}

  /// Empties the bus; true once there was an error.
  bool look();
  bool found() const { return !cause_.empty(); }
  /// Throws that error: NoDecoder if an element is missing, else SourceError.
  [[noreturn]] void raise(const SourceOptions& options) const;

 private:
  void note_error(GstMessage* message);

  GstOwned<GstBus> bus_;
  std::string cause_;
  std::string missing_;  // the element that is not installed
  bool no_decoder_ = false;
};

}  // namespace millrace::io
