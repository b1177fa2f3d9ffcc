// Turns or mirrors pictures upright.
#pragma once

#include <string_view>

#include <opencv2/core.hpp>

namespace millrace::io {

/// Whether `orientation`, as in EXIF, 1 (upright) to 8, swaps width and height.
inline bool lies_aside(int orientation) {
  return orientation > 4;
}

/// Sets `from` upright; `to` may be the same picture, or one of the right size and type. Reentrant.
inline void turn(const cv::Mat& from, int orientation, cv::Mat& to) {
  constexpr std::string_view across = "2367", down = "3478";
  const char as = char('0' + orientation);
  if (lies_aside(orientation))
    cv::transpose(from, to);
  else if (from.data != to.data)
    from.copyTo(to);
  if (across.find(as) != across.npos) cv::flip(to, to, 1);
  if (down.find(as) != down.npos) cv::flip(to, to, 0);
}

}  // namespace millrace::io
