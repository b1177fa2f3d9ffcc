#include "io/source/avi_header.h"

#include <array>        // the header's bytes
#include <cstdint>      // its fields
#include <filesystem>   // size of the file
#include <fstream>      // the file
#include <string_view>  // tags

namespace millrace::io {

double cut_avi_duration(const std::string& path) {
  // RIFF size "AVI " LIST size "hdrl" "avih" size, then the main header: microseconds a frame
  // comes first, the number of frames fifth.
  std::array<char, 52> bytes{};
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return 0.0;
  if (!std::ifstream(path, std::ios::binary).read(bytes.data(), bytes.size())) return 0.0;
  const auto tag = [&](std::size_t at) { return std::string_view(bytes.data() + at, 4); };
  const auto field = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 4; i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    return value;
  };
  if (tag(0) != "RIFF" || tag(8) != "AVI " || tag(24) != "avih") return 0.0;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  const bool cut = !error && size < std::uintmax_t(field(4)) + 8;
  return cut ? double(field(32)) * 1e-6 * double(field(48)) : 0.0;
}

}  // namespace millrace::io
