// Gives every frame the size the network was built for.
#pragma once

#include "io/source/frame.h"

namespace millrace::io {

/// Rescales frames that do not have the asked size (area averaging when shrinking, bilinear when
/// enlarging); frames that have it pass through untouched, bit for bit. Thread-bound.
class Fitter {
 public:
  /// `width` or `height` 0: the size of the first frame seen.
  Fitter(int width, int height) : width_(width), height_(height) {}

  /// Returns `frame` itself or, scaled (without a label), a frame that this object owns until the next call.
  const Frame& fit(const Frame& frame);

  int width() const { return width_; }
  int height() const { return height_; }

 private:
  int width_;
  int height_;
  Frame scaled_;
};

}  // namespace millrace::io
