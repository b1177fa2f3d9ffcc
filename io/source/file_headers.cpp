#include "io/source/file_headers.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "io/source/coded_size.h"

namespace millrace::io {
namespace {

constexpr std::size_t kHead = 1 << 20;

/// An unsigned number of `size` bytes at `at`; 0 beyond the end.
std::uint64_t number(std::string_view bytes, std::size_t at, int size, bool big_endian) {
  if (at > bytes.size() || bytes.size() - at < std::size_t(size)) return 0;
  std::uint64_t value = 0;
  for (int i = 0; i < size; ++i)
    value = value << 8 | std::uint8_t(bytes[at + std::size_t(big_endian ? i : size - 1 - i)]);
  return value;
}

PictureSize png_size(std::string_view head) {
  return {std::int64_t(number(head, 16, 4, true)), std::int64_t(number(head, 20, 4, true))};
}

PictureSize webp_size(std::string_view head) {
  const std::string_view kind = head.substr(12, 4);
  const auto at = [&](std::size_t place, int size) { return number(head, place, size, false); };
  if (kind == "VP8X") return {std::int64_t(at(24, 3)) + 1, std::int64_t(at(27, 3)) + 1};
  if (kind == "VP8 ") return {std::int64_t(at(26, 2) & 0x3fff), std::int64_t(at(28, 2) & 0x3fff)};
  const std::uint64_t bits = at(21, 4);  // lossless
  return {std::int64_t(bits & 0x3fff) + 1, std::int64_t(bits >> 14 & 0x3fff) + 1};
}

/// The first picture's; its table may lie anywhere in the file.
PictureSize tiff_size(std::ifstream& file, std::string_view head) {
  const bool big = head[0] == 'M';
  constexpr std::size_t kEntry = 12, kMost = 512;
  file.clear();
  file.seekg(std::streamoff(number(head, 4, 4, big)));
  std::string table(2 + kEntry * kMost, 0);
  file.read(table.data(), std::streamsize(table.size()));
  table.resize(std::size_t(file.gcount()));
  PictureSize size;
  const std::size_t entries = std::min<std::size_t>(kMost, number(table, 0, 2, big));
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t at = 2 + i * kEntry;
    const std::uint64_t tag = number(table, at, 2, big);
    const int bytes = number(table, at + 2, 2, big) == 3 ? 2 : 4;  // SHORT or LONG
    const auto value = std::int64_t(number(table, at + 8, bytes, big));
    if (tag == 256) size.width = value;
    if (tag == 257) size.height = value;
  }
  return size;
}

PictureSize bmp_size(std::string_view head) {
  if (number(head, 14, 4, false) < 40)  // the first header
    return {std::int64_t(number(head, 18, 2, false)), std::int64_t(number(head, 20, 2, false))};
  const auto side = [&](std::size_t at) {
    return std::abs(std::int64_t(std::int32_t(number(head, at, 4, false))));
  };
  return {side(18), side(22)};  // rows from the top have a negative height
}

/// "P6", then width and height as words, perhaps behind lines of comment.
PictureSize pnm_size(std::string_view head) {
  std::istringstream words{std::string(head.substr(2, 4096))};
  PictureSize size;
  for (std::int64_t* side : {&size.width, &size.height}) {
    while ((words >> std::ws).peek() == '#') words.ignore(4096, '\n');
    words >> *side;
  }
  return size;
}

std::optional<PictureSize> positive(const PictureSize& size) {
  if (size.width <= 0 || size.height <= 0) return std::nullopt;
  return size;
}

}  // namespace

std::optional<PictureSize> head_size(std::string_view head) {
  const std::string_view tag = head.substr(0, 4);
  const bool webp = tag == "RIFF" && head.size() >= 30 && head.substr(8, 4) == "WEBP";
  if (tag == "\x89PNG") return positive(png_size(head));
  if (webp) return positive(webp_size(head));
  if (tag.starts_with("\xff\xd8")) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(head.data());
    return positive(JpegHeaders().read({bytes, head.size()}).value_or(PictureSize()));
  }
  if (tag.starts_with("BM")) return positive(bmp_size(head));
  const bool pnm = tag.size() == 4 && tag[0] == 'P' && tag[1] >= '1' && tag[1] <= '6';
  return pnm ? positive(pnm_size(head)) : std::nullopt;
}

std::optional<PictureSize> picture_size(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string head(kHead, 0);
  file.read(head.data(), std::streamsize(head.size()));
  head.resize(std::size_t(file.gcount()));
  const std::string_view all(head), tag = all.substr(0, 4);
  const bool tiff = tag == std::string_view("II*\0", 4) || tag == std::string_view("MM\0*", 4);
  return tiff ? positive(tiff_size(file, all)) : head_size(all);
}

double cut_avi_duration(const std::string& path) {
  // RIFF size "AVI " LIST size "hdrl" "avih" size, then the main header: microseconds a frame
  // comes first, the number of frames fifth.
  std::string head(52, 0);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return 0.0;
  if (!std::ifstream(path, std::ios::binary).read(head.data(), 52)) return 0.0;
  const std::string_view all(head);
  if (all.substr(0, 4) != "RIFF" || all.substr(8, 4) != "AVI " || all.substr(24, 4) != "avih")
    return 0.0;
  const auto field = [&](std::size_t at) { return number(all, at, 4, false); };
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  const bool cut = !error && size < field(4) + 8;
  return cut ? double(field(32)) * 1e-6 * double(field(48)) : 0.0;
}

}  // namespace millrace::io
