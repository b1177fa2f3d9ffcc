// What the headers of pictures and video files say, before a library decodes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::io {

struct PictureSize {
  std::int64_t width = 0, height = 0;  ///< above 0
  bool exceeds(std::int64_t pixels) const { return width > pixels / height; }
};

/// Finds the sizes of JPEG pictures in a stream of bytes, however it is cut. Thread-bound.
class JpegHeaders {
 public:
  /// Goes on with `bytes`; the largest picture whose header ends in them, if there is one.
  std::optional<PictureSize> read(std::string_view bytes);

 private:
  std::optional<PictureSize> look();

  std::string head_;      // of a segment, from its 0xff on, as far as it is of interest
  std::size_t skip_ = 0;  // bytes of a segment to come
};

/// The size in the header of a coded picture or frame that begins with `bytes`; nothing if its
/// format, caps such as "video/x-vp8", is another or has none there.
std::optional<PictureSize> coded_size(std::string_view format, std::string_view bytes);

/// The size of a PNG, JPEG, WebP, TIFF, BMP or PNM file: a small file may unpack to gigabytes.
/// Nothing if it is none of these, or cut off. Reads at most 1 MiB. Any thread.
std::optional<PictureSize> picture_size(const std::string& path);

/// Seconds that a truncated AVI file was meant to last; 0 if it is no AVI file or not cut off.
/// (GStreamer counts what is there, so it takes such a file for a shorter whole one.)
double cut_avi_duration(const std::string& path);

}  // namespace millrace::io
