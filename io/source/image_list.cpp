#include "io/source/image_list.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <set>
#include <stdexcept>

#include <fnmatch.h>

#include "io/source/split_mix.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

bool digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_picture(const fs::path& path) {
  constexpr std::array<std::string_view, 10> endings = {".png",  ".jpg",  ".jpeg", ".bmp", ".tif",
                                                        ".tiff", ".webp", ".ppm",  ".pgm", ".pnm"};
  std::string ending = path.extension().string();
  for (char& c : ending) c = char(std::tolower(static_cast<unsigned char>(c)));
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
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
    throw std::invalid_argument("only a whole number can stand in a name, as in %05d");
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

std::int64_t first_number(const NumberedName& name) {
  std::int64_t first = -1;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(name.folder, error)) {
    const std::string file = entry.path().filename().string();
    const std::size_t around = name.before.size() + name.after.size();
    if (file.size() <= around || !file.starts_with(name.before) || !file.ends_with(name.after)) {
      continue;
    }
    const std::size_t start =
        std::min(file.find_first_not_of(' ', name.before.size()), file.size());
    const char* const end = file.data() + file.size() - name.after.size();
    std::int64_t number = -1;
    const auto [rest, bad] = std::from_chars(file.data() + start, end, number);
    // %05d doesn't match "7.png".
    const bool fits = bad == std::errc() && rest == end && number >= 0 &&
                      fs::path(name.path(number)).filename() == file;
    if (fits && (first < 0 || number < first)) first = number;
  }
  return first;
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
                            ? is_picture(entry.path())
                            : name == glob || fnmatch(glob.c_str(), name.c_str(), FNM_PERIOD) == 0;
    if (wanted && entry.is_regular_file(error)) found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

LabelledPictures list_classes(const std::string& folder, std::uint64_t seed) {
  constexpr int kMostClasses = 1000;
  LabelledPictures found;
  std::error_code error;
  if (!fs::is_directory(folder, error) || !list_pictures(folder).empty()) return found;
  std::set<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory(error)) folders.insert(entry.path());
  }
  for (const fs::path& place : folders) {
    const std::vector<std::string> pictures = list_pictures(place.string());
    for (const std::string& path : pictures) found.pictures.emplace_back(path, found.classes);
    found.classes += !pictures.empty();
  }
  if (found.classes > kMostClasses) throw std::invalid_argument("more than 1000 classes");
  Random random(seed);
  for (std::size_t left = found.pictures.size(); left > 1; --left)
    std::swap(found.pictures[left - 1],
              found.pictures[std::size_t(random.below(std::int64_t(left)))]);
  return found;
}

}  // namespace millrace::io
