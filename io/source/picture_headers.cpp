#include "io/source/picture_headers.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace millrace::io {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kHead = 1 << 20;

/// An unsigned number of `size` bytes at `at`; 0 beyond the end.
std::int64_t number(std::string_view bytes, std::size_t at, int size, bool big_endian) {
  if (at > bytes.size() || bytes.size() - at < std::size_t(size)) return 0;
  std::int64_t value = 0;
  for (int i = 0; i < size; ++i)
    value = value << 8 | std::uint8_t(bytes[at + std::size_t(big_endian ? i : size - 1 - i)]);
  return value;
}
std::int64_t big(std::string_view bytes, std::size_t at, int size) {
  return number(bytes, at, size, true);
}
std::int64_t little(std::string_view bytes, std::size_t at, int size) {
  return number(bytes, at, size, false);
}

/// The next bytes of a file, at most `most`.
std::string read_some(std::ifstream& file, std::size_t most) {
  std::string bytes(most, 0);
  bytes.resize(std::size_t(file.read(bytes.data(), std::streamsize(most)).gcount()));
  return bytes;
}

std::optional<PictureSize> positive(std::int64_t width, std::int64_t height) {
  if (width <= 0 || height <= 0) return std::nullopt;
  return PictureSize{width, height};
}

/// Key frames only: RFC 6386, 9.1.
std::optional<PictureSize> vp8_size(std::string_view frame) {
  return positive(little(frame, 6, 2) & 0x3fff, little(frame, 8, 2) & 0x3fff);
}

std::optional<PictureSize> webp_size(std::string_view head) {
  const std::string_view kind = head.substr(12, 4);
  if (kind == "VP8X") return positive(little(head, 24, 3) + 1, little(head, 27, 3) + 1);
  if (kind == "VP8 ") return vp8_size(head.substr(20));
  const std::int64_t bits = little(head, 21, 4);  // lossless
  return positive((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1);
}

bool is_jpeg(std::string_view head) {
  return head.starts_with("\xff\xd8");
}

bool is_tiff(std::string_view head) {
  return head.starts_with("II*\0"sv) || head.starts_with("MM\0*"sv);
}

struct TiffFields {
  std::int64_t width = 0, height = 0, bits = 1, orientation = 1;
};

/// Fields of the first picture; its table may be anywhere in the file. TIFF begins at `start`.
TiffFields tiff_fields(std::ifstream& file, std::string_view head, std::streamoff start = 0) {
  const bool big_endian = head[0] == 'M';
  constexpr std::int64_t kEntry = 12, kMost = 512;
  file.clear();
  file.seekg(start + std::streamoff(number(head, 4, 4, big_endian)));
  const std::string table = read_some(file, 2 + kEntry * kMost);
  TiffFields fields;
  const std::int64_t entries = std::min(kMost, number(table, 0, 2, big_endian));
  for (std::int64_t i = 0; i < entries; ++i) {
    const auto at = std::size_t(2 + i * kEntry);
    const std::int64_t tag = number(table, at, 2, big_endian);
    const int bytes = number(table, at + 2, 2, big_endian) == 3 ? 2 : 4;  // SHORT or LONG
    const std::int64_t value = number(table, at + 8, bytes, big_endian);
    if (tag == 256) fields.width = value;
    if (tag == 257) fields.height = value;
    if (tag == 274) fields.orientation = value;
    if (tag == 258) fields.bits = number(table, at + 4, 4, big_endian) == 1 ? value : 8;
  }
  return fields;
}

std::optional<PictureSize> bmp_size(std::string_view head) {
  if (little(head, 14, 4) < 40)  // the oldest header
    return positive(little(head, 18, 2), little(head, 20, 2));
  const auto side = [&](std::size_t at) {
    return std::abs(std::int64_t(std::int32_t(little(head, at, 4))));
  };
  return positive(side(18), side(22));  // top-down rows have a negative height
}

/// "P6", then width and height as words, perhaps after comment lines.
std::optional<PictureSize> pnm_size(std::string_view head) {
  std::istringstream words{std::string(head.substr(2, 4096))};
  std::int64_t sides[2] = {};
  for (std::int64_t& side : sides) {
    while ((words >> std::ws).peek() == '#') words.ignore(4096, '\n');
    words >> side;
  }
  return positive(sides[0], sides[1]);
}

/// For all formats but TIFF.
std::optional<PictureSize> head_size(std::string_view head) {
  const std::string_view tag = head.substr(0, 4);
  if (tag == "\x89PNG") return positive(big(head, 16, 4), big(head, 20, 4));
  if (tag == "RIFF" && head.size() >= 30 && head.substr(8, 4) == "WEBP") return webp_size(head);
  if (is_jpeg(head)) return JpegHeaders().read(head);
  if (tag.starts_with("BM")) return bmp_size(head);
  const bool pnm = tag.size() == 4 && tag[0] == 'P' && tag[1] >= '1' && tag[1] <= '6';
  return pnm ? pnm_size(head) : std::nullopt;
}

}  // namespace

std::optional<PictureSize> JpegHeaders::read(std::string_view bytes) {
  std::optional<PictureSize> largest;
  for (std::size_t at = 0; at < bytes.size();) {
    if (skip_ > 0) {
      const std::size_t skipped = std::min(skip_, bytes.size() - at);
      skip_ -= skipped;
      at += skipped;
      continue;
    }
    if (head_.empty()) at = bytes.find('\xff', at);  // entropy-coded 0xff is followed by 0
    if (at == bytes.npos) break;
    head_ += bytes[at++];
    const std::optional<PictureSize> size = look();
    if (size && (!largest || size->exceeds(largest->width * largest->height))) largest = size;
  }
  return largest;
}

/// Called after each byte of a segment's head; returns the size once complete.
std::optional<PictureSize> JpegHeaders::look() {
  if (head_.size() < 2) return std::nullopt;
  const auto marker = std::uint8_t(head_[1]);
  if (marker == 0xff) {  // fill byte
    head_.pop_back();
  } else if (marker <= 1 || (marker >= 0xd0 && marker <= 0xd9)) {  // markers without segment
    ended_ = ended_ || (begun_ && marker == 0xd9);
    head_.clear();
  } else if (head_.size() == 4 || head_.size() == 9 || head_.size() == 19) {
    // Marker, length (including its own two bytes), bits per sample, height, width; the number of
    // colours, and of each its name, sampling factors and table.
    const auto length = std::size_t(std::max<std::int64_t>(big(head_, 2, 2), 2));
    const bool frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 &&
                       marker != 0xcc && length >= 7;
    if (frame && (head_.size() == 4 || (head_.size() == 9 && length >= 17))) return std::nullopt;
    if (head_.size() == 19)
      odd_ = head_[9] == 3 && head_[11] != 0x11 && head_[11] == head_[14] && head_[11] == head_[17];
    const std::optional<PictureSize> size = positive(big(head_, 7, 2), big(head_, 5, 2));
    skip_ = length + 2 - head_.size();
    begun_ = begun_ || size;
    head_.clear();
    return size;
  }
  return std::nullopt;
}

bool is_animated(std::string_view bytes) {
  if (bytes.starts_with("RIFF"))
    return bytes.size() > 20 && bytes.substr(12, 4) == "VP8X" && (bytes[20] & 2) != 0;
  return bytes.substr(0, bytes.find("IDAT")).find("acTL") != bytes.npos;
}

std::optional<PictureSize> coded_size(std::string_view format, std::string_view bytes) {
  if (format == "video/x-vp8") {
    const bool key_frame =
        bytes.size() > 3 && (bytes[0] & 1) == 0 && bytes.substr(3).starts_with("\x9d\x01\x2a");
    return key_frame ? vp8_size(bytes) : std::nullopt;
  }
  if (format == "video/x-theora" && bytes.starts_with("\x80theora"))  // in blocks of 16 pixels
    return positive(16 * big(bytes, 10, 2), 16 * big(bytes, 12, 2));
  if (!format.starts_with("image/")) return std::nullopt;
  if (format == "image/png" && !bytes.starts_with("\x89PNG")) return std::nullopt;
  return head_size(bytes);
}

std::optional<PictureSize> picture_size(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string head = read_some(file, kHead);
  if (is_jpeg(head)) {
    JpegHeaders headers;
    std::optional<PictureSize> size;
    for (; !size && !head.empty(); head = read_some(file, kHead)) size = headers.read(head);
    return size;
  }
  if (!is_tiff(head)) return head_size(head);
  const TiffFields fields = tiff_fields(file, head);
  return positive(fields.width, fields.height);
}

bool is_cut_jpeg(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string head = read_some(file, kHead);
  if (!is_jpeg(head)) return false;
  JpegHeaders headers;
  for (; !headers.ended() && !head.empty(); head = read_some(file, kHead)) headers.read(head);
  return !headers.ended();
}

int webp_orientation(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string head(30, 0);
  file.read(head.data(), 30);
  if (!head.starts_with("RIFF") || head.substr(8, 8) != "WEBPVP8X") return 1;
  for (std::streamoff at = 12; file.seekg(at) && file.read(head.data(), 8);) {
    const std::int64_t length = little(head, 4, 4);
    at += 8;
    if (head.starts_with("EXIF") && file.read(head.data(), 14)) {
      if (head.starts_with("Exif")) head.erase(0, 6), at += 6;  // some writers begin as in JPEG
      const std::int64_t turn = is_tiff(head) ? tiff_fields(file, head, at).orientation : 1;
      return turn >= 1 && turn <= 8 ? int(turn) : 1;
    }
    at += length + length % 2;
  }
  return 1;
}

int grey_bits(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string head = read_some(file, kHead);
  if (is_tiff(head)) return int(tiff_fields(file, head).bits);
  if (head.starts_with("\x89PNG")) return int(big(head, 24, 1));
  if (head.starts_with("BM")) return int(little(head, 28, 2));
  return head.starts_with("P1") || head.starts_with("P4") ? 1 : 8;
}

double cut_avi_duration(const std::string& path) {
  // RIFF size "AVI " LIST size "hdrl" "avih" size, main header: us per frame first, frames fifth.
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return 0.0;
  std::ifstream file(path, std::ios::binary);
  const std::string all = read_some(file, 52);
  if (all.size() < 52 || !all.starts_with("RIFF") || all.substr(8, 4) != "AVI " ||
      all.substr(24, 4) != "avih")
    return 0.0;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  const bool cut = !error && size < std::uintmax_t(little(all, 4, 4)) + 8;
  return cut ? double(little(all, 32, 4)) * 1e-6 * double(little(all, 48, 4)) : 0.0;
}

}  // namespace millrace::io
