// What is shown of a prediction.
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

  /// Raw video of the picture's size at the rate of `in`, shaped as that is shown if
  /// `keeps_aspect`. The caller's.
  GstCaps* caps(const GstVideoInfo& in, bool stretched);
  /// The caller's, with the time of `shown`. Where the network gives no picture: the input.
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
