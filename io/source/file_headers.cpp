#include "io/source/file_headers.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <gst/base/gsttypefindhelper.h>

#include "io/source/gst_handles.h"
#include "io/source/gst_pipeline.h"  // start_gstreamer

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

PictureSize typed_size(std::string_view head) {
  start_gstreamer();
  const GstOwned<GstCaps> caps(gst_type_find_helper_for_data(
      nullptr, reinterpret_cast<const guint8*>(head.data()), head.size(), nullptr));
  int width = 0, height = 0;
  if (caps) {
    const GstStructure* const fields = gst_caps_get_structure(caps.get(), 0);
    gst_structure_get_int(fields, "width", &width);
    gst_structure_get_int(fields, "height", &height);
  }
  return {width, height};
}

std::optional<PictureSize> positive(const PictureSize& size) {
  if (size.width <= 0 || size.height <= 0) return std::nullopt;
  return size;
}

}  // namespace

std::optional<PictureSize> head_size(std::string_view head) {
  const std::string_view tag = head.substr(0, 4);
  const bool webp = tag == "RIFF" && head.size() >= 30 && head.substr(8, 4) == "WEBP";
  return positive(tag == "\x89PNG" ? png_size(head) : webp ? webp_size(head) : typed_size(head));
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
