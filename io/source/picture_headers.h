// Reads the headers of pictures and video files before a library decodes them.
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

/// Finds sizes of JPEG pictures in a byte stream cut anywhere. Thread-bound.
class JpegHeaders {
 public:
  /// Continues with `bytes`; the largest picture whose header ends there, if any.
  std::optional<PictureSize> read(std::string_view bytes);
  bool ended() const { return ended_; }
  /// Whether all three colours have equal sampling factors above 1, which some decoders get wrong.
  bool oddly_sampled() const { return odd_; }

 private:
  std::optional<PictureSize> look();

  std::string head_;      // of a segment, from its 0xff on, as far as needed
  std::size_t skip_ = 0;  // bytes of a segment still to come
  bool begun_ = false, ended_ = false, odd_ = false;
};

/// The size in the header of a coded picture or frame that begins with `bytes`; nothing if its
/// format, caps such as "video/x-vp8", is unknown or has none there.
std::optional<PictureSize> coded_size(std::string_view format, std::string_view bytes);

/// Whether the first bytes of a PNG or a WebP announce several pictures.
bool is_animated(std::string_view bytes);

/// The size of a PNG, JPEG, WebP, TIFF, BMP or PNM file: a small file may unpack to gigabytes.
/// Nothing for other or truncated files. Reads at most 1 MiB, of a JPEG up to its size. Any thread.
std::optional<PictureSize> picture_size(const std::string& path);

/// Whether a JPEG file lacks its end, which a decoder fills with grey.
bool is_cut_jpeg(const std::string& path);

/// EXIF orientation of a WebP file, 1 (upright) to 8. OpenCV turns those of other formats.
int webp_orientation(const std::string& path);

/// Bits per pixel of a grey picture. OpenCV stretches fewer than 8 to 0..255.
int grey_bits(const std::string& path);

/// Intended seconds of a truncated AVI file; 0 if it isn't AVI or not truncated. (GStreamer counts
/// the frames present and takes such a file for a shorter, whole one.)
double cut_avi_duration(const std::string& path);

}  // namespace millrace::io
