// images:DIR/%05d.png, images:DIR, images:DIR/*.png: numbered or sorted pictures as a stream. If
// DIR has folders of pictures, each folder is a class, and the pictures are shuffled.
#include "io/source/source_images.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include <fnmatch.h>

#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "io/source/picture_headers.h"
#include "io/source/source_kinds.h"
#include "io/source/split_mix.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

bool digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_picture(const fs::path& path) {
  constexpr std::array<std::string_view, 14> endings = {".jpe",  ".jfif", ".dib", ".pbm", ".png",
                                                        ".jpg",  ".jpeg", ".bmp", ".tif", ".tiff",
                                                        ".webp", ".ppm",  ".pgm", ".pnm"};
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
    throw std::invalid_argument("a name may contain only an integer placeholder such as %05d");
  }
  return at + 1;
}

/// The lowest existing number, or -1.
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

/// The paths of a stream of pictures, in order; "" after the last.
class PictureNames {
 public:
  PictureNames(const std::string& text, std::uint64_t seed) {
    if (text.find('%') != std::string::npos) {
      numbered_ = parse_numbered(text);
      first_ = first_number(numbered_);
      return;
    }
    list_classes(text, seed);
    if (classes_ > 0) return;
    for (std::string& path : list_pictures(text)) pictures_.emplace_back(std::move(path), -1);
  }

  std::string at(std::int64_t index) const {
    if (first_ < 0) return index < count() ? pictures_[std::size_t(index)].first : "";
    std::string path = numbered_.path(first_ + index);
    std::error_code ignored;
    return fs::exists(path, ignored) ? path : "";
  }

  /// 0 if unknown: a numbered stream ends at the first missing number.
  std::int64_t count() const { return std::int64_t(pictures_.size()); }

  int label(std::int64_t index) const {
    return first_ < 0 ? pictures_[std::size_t(index)].second : -1;
  }
  int classes() const { return classes_; }

 private:
  /// The pictures of one folder per class, numbered in order of their names; shuffled: a `seed`
  /// gives the same order on every machine. None if `folder` holds pictures itself.
  void list_classes(const std::string& folder, std::uint64_t seed) {
    constexpr int kMostClasses = 1000;
    std::error_code error;
    if (!fs::is_directory(folder, error) || !list_pictures(folder).empty()) return;
    std::set<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.is_directory(error)) folders.insert(entry.path());
    }
    for (const fs::path& place : folders) {
      const std::vector<std::string> found = list_pictures(place.string());
      for (const std::string& path : found) pictures_.emplace_back(path, classes_);
      classes_ += !found.empty();
    }
    if (classes_ > kMostClasses) throw std::invalid_argument("more than 1000 classes");
    Random random(seed);
    for (std::size_t left = pictures_.size(); left > 1; --left)
      std::swap(pictures_[left - 1], pictures_[std::size_t(random.below(std::int64_t(left)))]);
  }

  std::vector<std::pair<std::string, int>> pictures_;  // with their classes
  int classes_ = 0;
  NumberedName numbered_;
  std::int64_t first_ = -1;
};

class ImagesSource : public Source {
 public:
  ImagesSource(const SourceOptions& options, PictureNames names)
      : options_(options), names_(std::move(names)) {
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    if (names_.at(0).empty()) throw source_error(options_, "no pictures found");
    for (std::int64_t i = 0; !decode(names_.at(i)); ++i) {
      if (!names_.at(i + 1).empty()) continue;
      throw source_error(options_, large_.empty() ? "no picture can be decoded" : large_);
    }
    info_.kind = "images";
    info_.caps = fs::path(names_.at(0)).extension().string() + " files";
    info_.width = picture_.cols;
    info_.height = picture_.rows;
    info_.fps = rate_or_default(options.fps);
    info_.classes = names_.classes();
    info_.duration_s = double(names_.count()) / info_.fps;
  }

  SourceInfo info() const override { return info_; }

  ReadStatus read(Frame& out, std::chrono::milliseconds) override {
    const std::string path = names_.at(next_);
    if (path.empty()) return ReadStatus::end;
    const std::int64_t number = next_++;
    if (!decode(path)) return ReadStatus::corrupt;
    out.reshape(picture_.cols, picture_.rows, options_.channels);
    out.label = names_.label(number);
    out.pts = std::chrono::nanoseconds(std::int64_t(double(number) * 1e9 / info_.fps));
    cv::Mat to(out.height, out.width, picture_.type(), out.pixels.data());
    if (options_.channels == 1) {
      picture_.copyTo(to);
    } else {
      cv::cvtColor(picture_, to, cv::COLOR_BGR2RGB);
    }
    return ReadStatus::frame;
  }

  bool rewind() override {
    next_ = 0;
    return true;
  }

 private:
  /// False if it is no picture or too large.
  bool decode(const std::string& path) {
    const std::optional<PictureSize> size = picture_size(path);
    if (!size) return false;
    if (size->exceeds(options_.max_pixels)) {
      large_ = too_many_pixels(size->width, size->height, options_.max_pixels);
      return false;
    }
    try {
      picture_ = cv::imread(path, options_.channels == 1 ? cv::IMREAD_GRAYSCALE : cv::IMREAD_COLOR);
      return !picture_.empty();
    } catch (const cv::Exception&) {  // as some decoders do
      return false;
    }
  }

  const SourceOptions options_;
  const PictureNames names_;
  SourceInfo info_;
  cv::Mat picture_;
  std::string large_;  // why the latest oversized picture was refused
  std::int64_t next_ = 0;
};

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
                            ? is_picture(entry.path())
                            : name == glob || fnmatch(glob.c_str(), name.c_str(), FNM_PERIOD) == 0;
    if (wanted && entry.is_regular_file(error)) found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void check_images(const SourceOptions& options) {
  const std::string text = split_uri(options.uri).rest;
  if (text.empty()) throw source_error(options, "names no folder");
  try {
    if (text.find('%') != std::string::npos) parse_numbered(text);
  } catch (const std::invalid_argument& bad) {
    throw source_error(options, bad.what());
  }
}

std::unique_ptr<Source> open_images(const SourceOptions& options) {
  check_images(options);
  try {
    return std::make_unique<ImagesSource>(options,
                                          PictureNames(split_uri(options.uri).rest, options.seed));
  } catch (const std::invalid_argument& bad) {
    throw source_error(options, bad.what());
  }
}

}  // namespace millrace::io
