#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "io/source/gst_handles.h"
#include "io/source/source.h"

namespace millrace::io {

/// Watches the input of all decoders of `pipeline`, not started yet. If it announces more than
/// `most` pixels, or a picture's bytes don't end, posts an error and drops the data.
void bound_pictures(GstElement* pipeline, std::int64_t most);

using SharedTime = std::shared_ptr<std::atomic<GstClockTime>>;

/// The end of the last buffer of any track from a demuxer of `pipeline`, in state NULL; 0 before
/// the first. A file is whole if its sound lasts to the end, even when pictures end early.
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
  std::string missing_;  // the element that isn't installed
  bool no_decoder_ = false;
};

}  // namespace millrace::io
