// The error of a running pipeline, in one line.
#pragma once

#include <string>

#include "io/source/gst_handles.h"
#include "io/source/source.h"

namespace millrace::io {

/// The first error on a pipeline's bus. Thread-bound.
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
