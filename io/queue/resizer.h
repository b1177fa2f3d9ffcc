#pragma once

#include <string>
#include <vector>

#include "io/source/frame.h"

namespace millrace::io {

enum class Fit {
  stretch,  ///< width and height scale independently
  crop,     ///< the largest centred part with the right aspect ratio
  pad,      ///< the whole picture with black bars
};
const std::vector<std::string>& fit_names();
/// Throws std::invalid_argument for an unknown name.
Fit fit_of(const std::string& name);

/// A part of a picture, in pixels. `width` or `height` 0: the whole picture.
struct Region {
  int x = 0, y = 0, width = 0, height = 0;
  bool whole() const { return width <= 0 || height <= 0; }
  bool operator==(const Region&) const = default;
};

Region clipped(const Region& region, int width, int height);
bool lies_within(const Region& region, int width, int height);

/// Scales `from` of the picture to `to` of the result; bars fill the rest.
struct Placement {
  Region from, to;
};
/// Fits `view`, a part of a picture, into width x height. Opposite bars differ by at most a pixel.
Placement place(const Region& view, int width, int height, Fit fit);

/// One line if `fit` distorts a view of this size by more than 2 %; otherwise "".
std::string squash_note(const Region& view, int width, int height, Fit fit);

struct ResizerOptions {
  int width = 0, height = 0;  ///< of results; 0: the first view's
  Fit fit = Fit::stretch;
  Region region = {};  ///< the part of every frame to use
};

/// Scales views to the requested size, by area averaging when shrinking and bilinearly when
/// enlarging. A frame of that size passes unchanged; a part of that size is copied bit for bit.
/// Regions are clipped to the frame. Thread-bound.
class Resizer {
 public:
  explicit Resizer(ResizerOptions options) : options_(options) {}
  Resizer(int width, int height) : Resizer(ResizerOptions{.width = width, .height = height}) {}

  /// `frame` itself, or a frame with its id, times and label that is valid until the next call.
  const Frame& fit(const Frame& frame);

  int width() const { return options_.width; }
  int height() const { return options_.height; }

 private:
  /// Throws std::runtime_error in a build without OpenCV.
  void scale(const Frame& frame, const Placement& placement);

  ResizerOptions options_;
  Frame scaled_;
};

}  // namespace millrace::io
