#include "io/source/source_images.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>

#include <fnmatch.h>

#include "io/source/picture_headers.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

bool digit(char c) {
  return c >= '0' && c <= '9';
}

std::string ending_of(const fs::path& path) {
  std::string ending = path.extension().string();
  for (char& c : ending) c = char(std::tolower(static_cast<unsigned char>(c)));
  return ending;
}

/// Judges by the ending. Includes formats that cannot be read, to name them instead of skipping.
bool is_picture(const fs::path& path) {
  static const std::set<std::string> endings = {
      ".apng", ".avif", ".bmp", ".cur",  ".dds", ".dib",  ".exr",  ".gif", ".hdr", ".heic",
      ".heif", ".ico",  ".j2k", ".jfif", ".jp2", ".jpe",  ".jpeg", ".jpg", ".jxl", ".pam",
      ".pbm",  ".pcx",  ".pfm", ".pgm",  ".png", ".pnm",  ".ppm",  ".psd", ".qoi", ".ras",
      ".sgi",  ".sr",   ".svg", ".tga",  ".tif", ".tiff", ".webp", ".xbm", ".xpm", ".xwd"};
  return endings.contains(ending_of(path));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Reads the conversion at `text`, after the '%'; returns its length.
std::size_t parse_conversion(const std::string& text, NumberedName& name) {
  std::size_t at = 0;
  if (at < text.size() && text[at] == '0') name.fill = '0';
  while (at < text.size() && digit(text[at])) name.digits = name.digits * 10 + (text[at++] - '0');
  if (at > 3 || name.digits > 18) throw std::invalid_argument("the number has too many digits");
  if (at == text.size() || (text[at] != 'd' && text[at] != 'i' && text[at] != 'u')) {
    throw std::invalid_argument("a name may contain only an integer placeholder such as %05d");
  }
  return at + 1;
}

}  // namespace

std::string NumberedName::path(std::int64_t number) const {
  std::string text = std::to_string(number);
  if (int(text.size()) < digits) text.insert(0, std::size_t(digits) - text.size(), fill);
  return (fs::path(folder) / (before + text + after)).string();
}

NumberedName parse_numbered(const std::string& pattern) {
  const fs::path whole(pattern);
  const std::string file = whole.filename().string();
  NumberedName name;
  name.folder = folder_of(whole).string();
  std::error_code ignored;
  if (name.folder.find('%') != std::string::npos && !fs::exists(name.folder, ignored))
    throw std::invalid_argument("a number can stand in a file's name only, not in a folder's");
  bool found = false;
  for (std::size_t i = 0; i < file.size(); ++i) {
    std::string& part = found ? name.after : name.before;
    if (file[i] != '%') {
      part += file[i];
    } else if (i + 1 < file.size() && file[i + 1] == '%') {
      part += file[i++];
    } else if (found) {
      throw std::invalid_argument("more than one number stands in the name");
    } else {
      i += parse_conversion(file.substr(i + 1), name);
      found = true;
    }
  }
  if (!found) throw std::invalid_argument("no number such as %05d stands in the file name");
  return name;
}

std::vector<std::string> list_pictures(const std::string& folder_or_glob) {
  std::error_code error;
  const bool folder = fs::is_directory(folder_or_glob, error);
  const fs::path place = folder ? fs::path(folder_or_glob) : folder_of(folder_or_glob);
  const std::string glob = fs::path(folder_or_glob).filename().string();
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(place, error)) {
    const std::string name = entry.path().filename().string();
    const bool wanted = folder
                            ? is_picture(entry.path()) && !is_hidden(entry.path())
                            : name == glob || fnmatch(glob.c_str(), name.c_str(), FNM_PERIOD) == 0;
    if (wanted && entry.is_regular_file(error)) found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Numbers numbers_from(const NumberedName& name, std::int64_t least) {
  Numbers found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(name.folder, error)) {
    const std::string file = entry.path().filename().string();
    if (file.size() <= name.before.size() + name.after.size()) continue;
    const std::size_t end = file.size() - name.after.size();
    const std::size_t start = std::min(file.find_first_not_of(' ', name.before.size()), end);
    std::int64_t number = -1;
    std::from_chars(file.data() + start, file.data() + end, number);
    // %05d doesn't match "7.png".
    if (number < least || fs::path(name.path(number)).filename() != file) continue;
    if (found.count++ == 0 || number < found.first) found.first = number;
  }
  return found;
}

bool is_still(const std::filesystem::path& path) {
  static const std::set<std::string> endings = {".bmp",  ".dib", ".jfif", ".jpe",
                                                ".jpeg", ".jpg", ".tif",  ".tiff"};
  const std::string ending = ending_of(path);
  if (endings.contains(ending)) return true;
  std::error_code error;
  if ((ending != ".png" && ending != ".webp") || !fs::is_regular_file(path, error)) return false;
  std::string head(1 << 16, '\0');
  head.resize(
      std::size_t(std::ifstream(path, std::ios::binary).read(head.data(), 1 << 16).gcount()));
  const bool whole = ending == ".webp" ? head.size() > 20 : head.find("IDAT") != head.npos;
  return whole && !is_animated(head);
}

bool is_hidden(const std::filesystem::path& path) {
  return path.filename().string().starts_with('.');
}

}  // namespace millrace::io
