// Without OpenCV frames can only pass as they are.
#include <stdexcept>  // the refusal

#include "io/queue/fitter.h"

namespace millrace::io {

const Frame& Fitter::fit(const Frame& frame) {
  if (width_ <= 0) width_ = frame.width;
  if (height_ <= 0) height_ = frame.height;
  if (frame.width == width_ && frame.height == height_) return frame;
  throw std::runtime_error("this build has no OpenCV: a frame of " + std::to_string(frame.width) +
                           "x" + std::to_string(frame.height) + " can't be rescaled to " +
                           std::to_string(width_) + "x" + std::to_string(height_));
}

}  // namespace millrace::io
