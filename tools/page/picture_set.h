#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <opencv2/core/mat.hpp>

#include "tools/page/picture_board.h"

namespace millrace::page {

inline constexpr std::array<std::string_view, 5> kPictureNames = {"input", "target", "prediction",
                                                                  "error", "camera"};
inline constexpr std::size_t kCamera = 4;
using Bytes = std::shared_ptr<const std::string>;

/// Scaled to at most 960 pixels of width, for encoding and sending. Empty if `frame` is empty.
cv::Mat shown(const io::Frame& frame);

std::string png_of_input(const Pictures& pictures);

/// One sample's pictures as JPEG files, encoded on first use: a copy of a PictureBoard's pictures,
/// so that the board can be given back at once. Thread-bound. Doesn't start OpenCV's threads.
class PictureSet {
 public:
  /// `camera`: BGR or grey, not copied; may be empty.
  explicit PictureSet(const Pictures& pictures, cv::Mat camera = {});

  /// The picture kPictureNames[index]. "error" is |target - prediction|, averaged over the
  /// channels, from black (0) to bright yellow (1/4 and more); for classes, yellow means wrong.
  /// Empty if the run has no such picture.
  Bytes jpeg(std::size_t index);
  /// The sample number in 8 bytes, five lengths of 4 bytes each, all little-endian, and the files.
  Bytes message();

 private:
  std::int64_t sample_;
  std::array<cv::Mat, 5> pictures_;  ///< BGR or grey
  std::array<Bytes, 5> files_;
  Bytes message_;
};

}  // namespace millrace::page
