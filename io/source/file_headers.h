// What the headers of picture and video files say, before a library decodes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::io {

struct PictureSize {
  std::int64_t width = 0, height = 0;
};

/// The size of the picture whose file begins with `head`, as below. Any thread.
std::optional<PictureSize> head_size(std::string_view head);

/// The size of a PNG, JPEG, WebP, TIFF, BMP or PNM file: a small file may unpack to gigabytes.
/// Nothing if it is none of these, or cut off. Reads at most 1 MiB. Any thread.
std::optional<PictureSize> picture_size(const std::string& path);

/// Seconds that a truncated AVI file was meant to last; 0 if it is no AVI file or not cut off.
/// (GStreamer counts what is there, so it takes such a file for a shorter whole one.)
double cut_avi_duration(const std::string& path);

}  // namespace millrace::io
