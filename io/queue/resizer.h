// Gives every frame the size the network was built for.
#pragma once

#include <string>  // names, notes
#include <vector>  // names

#include "io/source/frame.h"

namespace millrace::io {

/// What is done with a picture of another shape than the network's.
enum class Fit {
  stretch,  ///< width and height are scaled apart
  crop,     ///< the largest centred part of the right shape is taken
  pad,      ///< the whole picture is kept, black bars fill the rest
};
/// By their names in a config.
const std::vector<std::string>& fit_names();
/// Throws std::invalid_argument for another name.
Fit fit_of(const std::string& name);

/// A part of a picture, in pixels. `width` or `height` 0: the whole picture.
struct Region {
  int x = 0, y = 0, width = 0, height = 0;
  bool whole() const { return width <= 0 || height <= 0; }
  bool operator==(const Region&) const = default;
};

/// The part of a width x height picture that `region` names, clipped to the picture.
Region clipped(const Region& region, int width, int height);
/// Whether `region` lies within a width x height picture.
bool lies_within(const Region& region, int width, int height);

/// Which part of a picture is scaled to which part of the result; bars fill the rest.
struct Placement {
  Region from, to;
};
/// Scales `view`, a part of a picture, to width x height by `fit`. Bars differ by a pixel at most.
Placement place(const Region& view, int width, int height, Fit fit);

/// One line if `fit` squashes a view of that size by more than 2 %; else "".
std::string squash_note(const Region& view, int width, int height, Fit fit);

struct ResizerOptions {
  int width = 0, height = 0;  ///< of results; 0: the first view's
  Fit fit = Fit::stretch;
  Region region = {};  ///< the view: the part of every frame that is looked at
};

/// Rescales views that do not have the asked size (area averaging when shrinking, bilinear when
/// enlarging). A whole frame of that size passes untouched; a part of that size is copied bit for
/// bit. A region that a frame does not hold is clipped to it. Thread-bound.
class Resizer {
 public:
  explicit Resizer(ResizerOptions options) : options_(options) {}
  Resizer(int width, int height) : Resizer(ResizerOptions{.width = width, .height = height}) {}

  /// Returns `frame` itself or a frame that this object owns until the next call, with id, times
  /// and label of `frame`.
  const Frame& fit(const Frame& frame);

  int width() const { return options_.width; }
  int height() const { return options_.height; }

 private:
  /// Scales pixels; in a build without OpenCV, where sizes differ, throws std::runtime_error.
  void scale(const Frame& frame, const Placement& placement);

  ResizerOptions options_;
  Frame scaled_;
};

}  // namespace millrace::io
