// The sizes of coded pictures by their headers, before they are decoded.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "io/source/file_headers.h"

namespace millrace::io {

/// Finds the sizes of JPEG pictures in a stream of bytes, however it is cut. Thread-bound.
class JpegHeaders {
 public:
  /// Goes on with `bytes`; the largest picture whose header ends in them, if there is one.
  std::optional<PictureSize> read(std::span<const std::uint8_t> bytes);

 private:
  enum class At { data, marker, length, frame, skipped };
  void begin(std::uint8_t marker);

  At at_ = At::data;
  std::uint8_t marker_ = 0;
  std::array<std::uint8_t, 5> head_{};  // of a frame header: bits a sample, height, width
  std::size_t got_ = 0;                 // bytes of `head_`
  std::size_t left_ = 0;                // bytes of a segment
};

/// The size in the header of a coded picture or frame that begins with `bytes`; nothing if its
/// format, caps such as "video/x-vp8", is another or has none there.
std::optional<PictureSize> coded_size(std::string_view format, std::span<const std::uint8_t> bytes);

}  // namespace millrace::io
