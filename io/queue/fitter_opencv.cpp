#include <opencv2/imgproc.hpp>  // cv::resize

#include "io/queue/fitter.h"

namespace millrace::io {

const Frame& Fitter::fit(const Frame& frame) {
  if (width_ <= 0) width_ = frame.width;
  if (height_ <= 0) height_ = frame.height;
  if (frame.width == width_ && frame.height == height_) return frame;

  scaled_.id = frame.id;
  scaled_.captured = frame.captured;
  scaled_.pts = frame.pts;
  scaled_.width = width_;
  scaled_.height = height_;
  scaled_.channels = frame.channels;
  scaled_.pixels.resize(scaled_.bytes());

  // OpenCV's headers take no pointer to const, but the source of a resize is only read.
  const int type = CV_MAKETYPE(CV_8U, frame.channels);
  const cv::Mat from(frame.height, frame.width, type,
                     const_cast<std::uint8_t*>(frame.pixels.data()));
  cv::Mat to(height_, width_, type, scaled_.pixels.data());
  const bool shrinks = width_ <= frame.width && height_ <= frame.height;
  cv::resize(from, to, to.size(), 0, 0, shrinks ? cv::INTER_AREA : cv::INTER_LINEAR);
  return scaled_;
}

}  // namespace millrace::io
