#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/source/frame.h"

namespace millrace::io {

enum class Fit {
  stretch,  ///< width and height scale independently
  crop,     ///< the largest centred part with the right aspect ratio
  pad,      ///< the whole picture with black bars
};
inline const std::vector<std::string>& fit_names() {
  static const std::vector<std::string> names = {"stretch", "crop", "pad"};
  return names;
}
/// Throws std::invalid_argument for an unknown name.
inline Fit fit_of(const std::string& name) {
  const auto& names = fit_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw std::invalid_argument("unknown fit \"" + name + "\"");
  return Fit(found - names.begin());
}

/// A part of a picture, in pixels. `width` or `height` 0: the whole picture.
struct Region {
  int x = 0, y = 0, width = 0, height = 0;
  bool whole() const { return width <= 0 || height <= 0; }
  bool operator==(const Region&) const = default;
};

inline Region clipped(const Region& region, int width, int height) {
  if (region.whole()) return {0, 0, width, height};
  const int x = std::clamp(region.x, 0, width - 1), y = std::clamp(region.y, 0, height - 1);
  return {x, y, std::min(region.width, width - x), std::min(region.height, height - y)};
}
inline bool lies_within(const Region& region, int width, int height) {
  return region.whole() || clipped(region, width, height) == region;
}

/// `side` times numerator / denominator, rounded, at least 1.
inline int scaled(int side, int numerator, int denominator) {
  const std::int64_t product = std::int64_t(side) * numerator;
  return std::max(1, int((product + denominator / 2) / denominator));
}

/// The largest centred part of `outer` with aspect ratio width : height.
inline Region centred(const Region& outer, int width, int height) {
  Region inner = outer;
  if (std::int64_t(outer.width) * height > std::int64_t(outer.height) * width)
    inner.width = std::min(outer.width, scaled(outer.height, width, height));
  else
    inner.height = std::min(outer.height, scaled(outer.width, height, width));
  inner.x += (outer.width - inner.width) / 2;
  inner.y += (outer.height - inner.height) / 2;
  return inner;
}

/// Scales `from` of the picture to `to` of the result; bars fill the rest.
struct Placement {
  Region from, to;
};
/// Fits `view`, a part of a picture, into width x height. Opposite bars differ by at most a pixel.
inline Placement place(const Region& view, int width, int height, Fit fit) {
  const Region all{0, 0, width, height};
  return {fit == Fit::crop ? centred(view, width, height) : view,
          fit == Fit::pad ? centred(all, view.width, view.height) : all};
}

/// One line if `fit` distorts a view of this size by more than 2 %; otherwise "".
inline std::string squash_note(const Region& view, int width, int height, Fit fit) {
  constexpr int kNoticedPercent = 2;
  if (fit != Fit::stretch || width <= 0 || height <= 0) return "";
  const std::int64_t across = std::int64_t(view.width) * height;
  const std::int64_t down = std::int64_t(view.height) * width;
  const std::int64_t apart = across > down ? across - down : down - across;
  if (100 * apart <= kNoticedPercent * std::max(across, down)) return "";
  return "frames of " + size_text(view.width, view.height) + " are squashed to " +
         size_text(width, height) + "; source.fit = \"crop\" or \"pad\" keeps their shape";
}

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
  const Frame& fit(const Frame& frame) {
    const Region view = clipped(options_.region, frame.width, frame.height);
    if (options_.width <= 0) options_.width = view.width;
    if (options_.height <= 0) options_.height = view.height;
    const Region all{0, 0, frame.width, frame.height};
    if (view == all && all == Region{0, 0, options_.width, options_.height}) return frame;
    scaled_.date_like(frame);
    scaled_.label = frame.label;
    scaled_.reshape(options_.width, options_.height, frame.channels);
    const Placement placement = place(view, options_.width, options_.height, options_.fit);
    const Region &from = placement.from, &to = placement.to;
    if (to.width < scaled_.width || to.height < scaled_.height)
      std::ranges::fill(scaled_.pixels, 0);
    if (from.width != to.width || from.height != to.height) {
      scale(frame, placement);
      return scaled_;
    }
    const std::size_t row = std::size_t(to.width) * frame.channels;
    const auto at = [](int y, int x, const Frame& of) {
      return (std::size_t(y) * of.width + x) * of.channels;
    };
    for (int y = 0; y < to.height; ++y) {
      std::memcpy(&scaled_.pixels[at(to.y + y, to.x, scaled_)],
                  &frame.pixels[at(from.y + y, from.x, frame)], row);
    }
    return scaled_;
  }

  int width() const { return options_.width; }
  int height() const { return options_.height; }

 private:
  /// Throws std::runtime_error in a build without OpenCV.
  void scale(const Frame& frame, const Placement& placement);

  ResizerOptions options_;
  Frame scaled_;
};

}  // namespace millrace::io
