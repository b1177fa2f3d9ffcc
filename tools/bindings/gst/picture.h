// Draws predictions.
#pragma once

#include <array>

#include <gst/video/video.h>

#include "io/source/frame.h"
#include "tools/bindings/gst/outlet.h"

namespace millrace::gst {

enum class Output { prediction, error, input_beside };

/// Draws pictures of one size. Thread-bound.
class Picture {
 public:
  /// `shape`: channels, height, width of a sample.
  Picture(const std::array<int, 3>& shape, Output output);

  /// Raw video of the picture's size at the frame rate of `in`. `stretched`: its pixel aspect ratio
  /// undoes the stretch. The caller owns the result.
  GstCaps* caps(const GstVideoInfo& in, bool stretched);
  /// A buffer with the time of `shown`, which the caller owns. If the network's output is no
  /// picture, it shows the input.
  GstBuffer* draw(const Shown& shown);

 private:
  void planar(const std::vector<float>& values, io::Frame& out) const;

  const std::array<int, 3> shape_;
  const Output output_;
  GstVideoInfo info_;
  std::vector<float> error_;
  io::Frame left_, right_, both_;  ///< storage is reused
};

}  // namespace millrace::gst
