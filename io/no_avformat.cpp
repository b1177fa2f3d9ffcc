// For a build whose OpenCV is without FFmpeg.
#include "io/source/picture_headers.h"

namespace millrace::io {

std::optional<PictureSize> declared_size(const std::string& path) {
  return picture_size(path);
}

}  // namespace millrace::io
