// How large a picture is, by its header alone: a small file may unpack to gigabytes.
#pragma once

#include <cstdint>   // sides
#include <optional>  // not known
#include <string>    // path

namespace millrace::io {

struct PictureSize {
  std::int64_t width = 0, height = 0;
};

/// Of PNG, JPEG, WebP, TIFF, BMP and PNM; nothing of what is none, or is cut off. Reads 1 MiB at
/// most. Any thread.
std::optional<PictureSize> picture_size(const std::string& path);

}  // namespace millrace::io
