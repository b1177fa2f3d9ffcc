#pragma once

#include <gst/video/video.h>

#include <array>

#include "io/queue/planar.h"
#include "io/source/gst_handles.h"
#include "tools/bindings/gst/queues.h"

namespace millrace::gst {

enum class Output { prediction, error, input_beside };

/// Draws predictions as pictures of one size. Thread-bound.
class Picture {
 public:
  /// `shape`: channels, height, width of a sample.
  Picture(const std::array<int, 3>& shape, Output output) : shape_(shape), output_(output) {
    const auto [channels, height, width] = shape_;
    gst_video_info_set_format(&info_, io::format_of(channels),
                              guint(output == Output::input_beside ? 2 * width : width),
                              guint(height));
  }

  /// Raw video of the picture's size at `in`'s frame rate. `stretched`: its pixel aspect ratio
  /// undoes the stretch. The caller owns the result.
  GstCaps* caps(const GstVideoInfo& in, bool stretched) {
    GST_VIDEO_INFO_FPS_N(&info_) = GST_VIDEO_INFO_FPS_N(&in);
    GST_VIDEO_INFO_FPS_D(&info_) = GST_VIDEO_INFO_FPS_D(&in);
    gint wide = GST_VIDEO_INFO_PAR_N(&in), high = GST_VIDEO_INFO_PAR_D(&in);
    if (stretched) {  // shown with the input's aspect ratio
      gst_util_fraction_multiply(wide, high, GST_VIDEO_INFO_WIDTH(&in), GST_VIDEO_INFO_HEIGHT(&in),
                                 &wide, &high);
      gst_util_fraction_multiply(wide, high, shape_[1], shape_[2], &wide, &high);
    }
    GST_VIDEO_INFO_PAR_N(&info_) = wide;
    GST_VIDEO_INFO_PAR_D(&info_) = high;
    return gst_video_info_to_caps(&info_);
  }
  /// A buffer, owned by the caller, with the time of `shown`. Shows the input if the network's
  /// output is not a picture.
  GstBuffer* draw(const Shown& shown) {
    const bool pictures = shown.prediction.size() == shown.input.size();
    const bool beside = output_ == Output::input_beside;
    if (pictures && output_ == Output::error) {
      std::vector<float> error = io::shown_error(shown.prediction, shown.target);
      error.resize(shown.prediction.size());  // black without a target
      planar(error, right_);
    } else {
      planar(pictures ? shown.prediction : shown.input, right_);
    }
    if (beside) {
      planar(shown.input, left_);
      io::side_by_side(left_, right_, both_);
    }
    GstBuffer* const buffer =
        gst_buffer_new_allocate(nullptr, GST_VIDEO_INFO_SIZE(&info_), nullptr);
    io::copy_pixels(beside ? both_ : right_, info_, buffer);
    GST_BUFFER_PTS(buffer) = shown.stamp.pts;
    GST_BUFFER_DURATION(buffer) = shown.stamp.duration;
    return buffer;
  }

 private:
  void planar(const std::vector<float>& values, io::Frame& out) const {
    io::from_planar(values.data(), shape_[0], shape_[1], shape_[2], out);
  }

  const std::array<int, 3> shape_;
  const Output output_;
  GstVideoInfo info_;
  io::Frame left_, right_, both_;
};

}  // namespace millrace::gst
