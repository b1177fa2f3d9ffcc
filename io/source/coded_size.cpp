#include "io/source/coded_size.h"

#include <algorithm>
#include <cstring>

namespace millrace::io {
namespace {

using Bytes = std::span<const std::uint8_t>;

std::uint64_t big_endian(Bytes bytes, std::size_t at) {
  return std::uint64_t(bytes[at]) << 8 | bytes[at + 1];
}

std::uint64_t little_endian(Bytes bytes, std::size_t at) {
  return std::uint64_t(bytes[at + 1]) << 8 | bytes[at];
}

}  // namespace

void JpegHeaders::begin(std::uint8_t marker) {
  marker_ = marker;
  got_ = left_ = 0;
  const bool alone = marker <= 1 || (marker >= 0xd0 && marker <= 0xd9);  // it has no segment
  if (marker != 0xff) at_ = alone ? At::data : At::length;               // 0xff: fills
}

std::optional<PictureSize> JpegHeaders::read(Bytes bytes) {
  std::optional<PictureSize> largest;
  for (std::size_t i = 0; i < bytes.size();) {
    const std::uint8_t byte = bytes[i];
    switch (at_) {
      case At::data: {  // entropy-coded data has a 0 after each 0xff
        const void* const next = std::memchr(&bytes[i], 0xff, bytes.size() - i);
        if (!next) return largest;
        i = std::size_t(static_cast<const std::uint8_t*>(next) - bytes.data()) + 1;
        at_ = At::marker;
        break;
      }
      case At::marker:
        begin(byte);
        ++i;
        break;
      case At::length: {
        left_ = left_ << 8 | byte;
        ++i;
        if (++got_ < 2) break;
        got_ = 0;
        left_ -= std::min<std::size_t>(left_, 2);
        const bool frame = marker_ >= 0xc0 && marker_ <= 0xcf && marker_ != 0xc4 &&
                           marker_ != 0xc8 && marker_ != 0xcc;
        at_ = frame && left_ >= head_.size() ? At::frame : left_ > 0 ? At::skipped : At::data;
        break;
      }
      case At::frame: {
        head_[got_++] = byte;
        ++i;
        if (got_ < head_.size()) break;
        left_ -= head_.size();
        at_ = left_ > 0 ? At::skipped : At::data;
        const PictureSize size{std::int64_t(big_endian(head_, 3)),
                               std::int64_t(big_endian(head_, 1))};
        if (!largest || size.width * size.height > largest->width * largest->height) largest = size;
        break;
      }
      case At::skipped: {
        const std::size_t skipped = std::min(left_, bytes.size() - i);
        left_ -= skipped;
        i += skipped;
        if (left_ == 0) at_ = At::data;
      }
    }
  }
  return largest;
}

std::optional<PictureSize> coded_size(std::string_view format, Bytes bytes) {
  const auto begins = [&](std::size_t at, std::string_view text) {
    return bytes.size() >= at + text.size() &&
           std::memcmp(bytes.data() + at, text.data(), text.size()) == 0;
  };
  if (format == "video/x-vp8") {  // RFC 6386, 9.1: of a key frame
    if (bytes.size() < 10 || (bytes[0] & 1) != 0 || !begins(3, "\x9d\x01\x2a")) return std::nullopt;
    return PictureSize{std::int64_t(little_endian(bytes, 6) & 0x3fff),
                       std::int64_t(little_endian(bytes, 8) & 0x3fff)};
  }
  if (format == "video/x-theora") {  // in macroblocks of 16 pixels
    if (bytes.size() < 14 || !begins(0, "\x80theora")) return std::nullopt;
    return PictureSize{16 * std::int64_t(big_endian(bytes, 10)),
                       16 * std::int64_t(big_endian(bytes, 12))};
  }
  if (!format.starts_with("image/")) return std::nullopt;
  if (format == "image/png" && !begins(0, "\x89PNG")) return std::nullopt;
  return head_size({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace millrace::io
