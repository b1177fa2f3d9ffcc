// One sample's pictures as JPEG files, made when somebody first wants them.
#pragma once

#include <array>        // one a picture
#include <cstdint>      // sample numbers
#include <memory>       // files that several viewers send
#include <string>       // bytes
#include <string_view>  // names

#include <opencv2/core/mat.hpp>  // pictures

#include "tools/page/picture_board.h"

namespace millrace::page {

inline constexpr std::array<std::string_view, 4> kPictureNames = {"input", "target", "prediction",
                                                                  "error"};
using Bytes = std::shared_ptr<const std::string>;

/// Bytes copied out of a PictureBoard, so that the board is free again at once. One thread. Uses no
/// threads of OpenCV's.
class PictureSet {
 public:
  explicit PictureSet(const Pictures& pictures);

  /// JPEG number `index` of kPictureNames. "error" is |target - prediction|, averaged over the
  /// channels, from black (0) to bright yellow (1/4 and more); of classes, yellow is a wrong one.
  /// Empty: the run has no such picture.
  Bytes jpeg(std::size_t index);
  /// All four in one message: the sample's number as 8 bytes, four lengths of 4 bytes each, little
  /// end first, then the files.
  Bytes message();

 private:
  std::int64_t sample_;
  std::array<cv::Mat, 4> pictures_;  ///< BGR or grey
  std::array<Bytes, 4> files_;
  Bytes message_;
};

}  // namespace millrace::page
