// images:DIR/%05d.png, images:DIR, images:DIR/*.png: numbered or sorted pictures as a stream. If
// DIR has folders of pictures, each folder is a class, and the pictures are shuffled.
#include "io/source/source_images.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <set>
#include <stdexcept>

#include <fnmatch.h>

#include <opencv2/core/utility.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "io/files/whole_file.h"
#include "io/source/codecs.h"
#include "io/source/picture_headers.h"
#include "io/source/source_kinds.h"
#include "io/source/split_mix.h"
#include "io/text/nearest_name.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

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

// Reads the conversion at `text`, after the '%'; returns its length.
std::size_t parse_conversion(const std::string& text, NumberedName& name) {
  std::size_t at = 0;
  if (at < text.size() && text[at] == '0') name.fill = '0';
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
    name.digits = name.digits * 10 + (text[at] - '0');
  if (at > 3 || name.digits > 18) throw std::invalid_argument("the number has too many digits");
  if (at == text.size() || (text[at] != 'd' && text[at] != 'i' && text[at] != 'u')) {
    throw std::invalid_argument("a name may contain only an integer placeholder such as %05d");
  }
  return at + 1;
}

/// See folder_classes().
std::vector<std::string> names_of(const std::map<std::string, std::vector<std::string>>& folders,
                                  const SourceOptions& options) {
  constexpr std::size_t kMostClasses = 1000;
  std::vector<std::string> names;
  for (const auto& [place, pictures] : folders) names.push_back(fs::path(place).filename());
  if (names.size() > kMostClasses) throw source_error(options, "more than 1000 classes");
  if (names.empty() || options.classes.empty()) return names;
  for (const std::string& name : names) {
    if (std::ranges::find(options.classes, name) == options.classes.end())
      throw source_error(options, "the folder \"" + name +
                                      "\" is none of the classes; the nearest is \"" +
                                      nearest_name(name, options.classes) + "\"");
  }
  return options.classes;
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

std::map<std::string, std::vector<std::string>> class_folders(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error) || !list_pictures(folder).empty()) return {};
  std::map<std::string, std::vector<std::string>> found;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!entry.is_directory(error) || is_hidden(entry.path())) continue;
    std::vector<std::string> pictures = list_pictures(entry.path());
    if (!pictures.empty()) found.emplace(entry.path(), std::move(pictures));
  }
  return found;
}

std::vector<std::string> folder_classes(const SourceOptions& options) {
  const Uri uri = split_uri(options.uri);
  if (uri.scheme != "images") return {};
  return names_of(class_folders(uri.rest), options);
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

namespace {

class PictureNames {
 public:
  explicit PictureNames(const SourceOptions& options) {
    const std::string text = split_uri(options.uri).rest;
    if (text.find('%') != std::string::npos) {
      numbered_ = parse_numbered(text);
      first_ = numbers_from(numbered_, 0).first;
      return;
    }
    list_classes(class_folders(text), options);
    if (classes_ > 0) return;
    for (std::string& path : list_pictures(text)) pictures_.emplace_back(std::move(path), -1);
  }

  std::string at(std::int64_t index) const {
    if (first_ < 0) return index < count() ? pictures_[std::size_t(index)].first : "";
    return numbered_.path(first_ + index);
  }
  bool has(std::int64_t index) const {
    std::error_code ignored;
    return first_ < 0 ? index < count() : fs::exists(at(index), ignored);
  }
  /// Files after a gap; `first` counts from 0, as an index.
  Numbers beyond(std::int64_t index) const {
    if (first_ < 0) return {};
    const Numbers found = numbers_from(numbered_, first_ + index);
    return {found.first - first_, found.count};
  }

  /// 0 if unknown: numbered files may still be added.
  std::int64_t count() const { return std::int64_t(pictures_.size()); }

  int label(std::int64_t index) const {
    return first_ < 0 ? pictures_[std::size_t(index)].second : -1;
  }
  int classes() const { return classes_; }

 private:
  /// Lists the pictures of each class and shuffles them: a seed gives the same order on every
  /// machine. None if there are no folders.
  void list_classes(const std::map<std::string, std::vector<std::string>>& folders,
                    const SourceOptions& options) {
    const std::vector<std::string> names = names_of(folders, options);
    classes_ = int(names.size());
    for (const auto& [place, pictures] : folders) {
      const std::string name = fs::path(place).filename();
      const int label = int(std::ranges::find(names, name) - names.begin());
      for (const std::string& path : pictures) pictures_.emplace_back(path, label);
    }
    Random random(options.seed);
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
  explicit ImagesSource(const SourceOptions& options) : options_(options), names_(options) {
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    if (!names_.has(0)) throw source_error(options_, "no pictures found");
    std::string wrong = decode(names_.at(0));
    for (std::int64_t i = 1; !wrong.empty(); ++i) {
      if (!names_.has(i)) throw source_error(options_, "no picture can be decoded: " + wrong);
      wrong = decode(names_.at(i));
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
    if (next_ >= resumes_ && !names_.has(next_) && !pass_gap()) return ReadStatus::end;
    const std::int64_t number = next_++;
    if (number < resumes_) return ReadStatus::corrupt;
    if (const std::string wrong = decode(names_.at(number)); !wrong.empty()) {
      health_->note(wrong);
      return ReadStatus::corrupt;
    }
    out.reshape(picture_.cols, picture_.rows, options_.channels);
    out.label = names_.label(number);
    out.pts = std::chrono::nanoseconds(std::int64_t(double(number) * 1e9 / info_.fps));
    cv::Mat to(out.height, out.width, picture_.type(), out.pixels.data());
    picture_.copyTo(to);
    return ReadStatus::frame;
  }

  bool rewind() override {
    next_ = resumes_ = 0;
    return true;
  }

  std::shared_ptr<const StreamHealth> health() const override { return health_; }

 private:
  /// False if the pictures end here. Missing ones of a gap count as rejected, so that the numbers
  /// of labels and masks remain those of the files.
  bool pass_gap() {
    constexpr std::int64_t kLongest = 1000;
    const Numbers beyond = names_.beyond(next_);
    if (beyond.count == 0) return false;
    const bool on = beyond.first - next_ <= kLongest;
    const bool one = beyond.count == 1;
    health_->note(names_.at(next_) + " is missing; " + std::to_string(beyond.count) +
                  (one ? " file follows, " : " files follow, from ") +
                  fs::path(names_.at(beyond.first)).filename().string() + (one ? "" : " on") +
                  (on ? "" : ", and will not be read: images:FOLDER reads all by name"));
    if (on) resumes_ = beyond.first;
    return on;
  }

  /// Why the file is no whole picture or too large; "": it is picture_.
  std::string decode(const std::string& path) {
    const std::optional<PictureSize> size = picture_size(path);
    if (!size) return decode_other(path);
    if (size->exceeds(options_.max_pixels))
      return path + ": " + too_many_pixels(size->width, size->height, options_.max_pixels);
    if (is_cut_jpeg(path)) return path + ": ends before the picture does";
    try {
      picture_ =
          codecs().imread(path, options_.channels == 1 ? cv::IMREAD_GRAYSCALE : cv::IMREAD_COLOR);
      if (picture_.empty()) return path + ": cannot be decoded";
      if (options_.channels == 3) cv::cvtColor(picture_, picture_, cv::COLOR_BGR2RGB);
      turn(picture_, webp_orientation(path), picture_);
      return "";
    } catch (const cv::Exception&) {  // some decoders throw
      return path + ": cannot be decoded";
    }
  }

  /// A picture whose header picture_size() does not know.
  std::string decode_other(const std::string& path) {
    try {
      SourceOptions options = options_;
      options.uri = path;
      codecs().open_ffmpeg(options, path)->read(other_, {});
      picture_ = cv::Mat(other_.height, other_.width, options_.channels == 1 ? CV_8UC1 : CV_8UC3,
                         other_.pixels.data());
      return "";
    } catch (const SourceError& refused) {
      return refused.what();
    }
  }

  const SourceOptions options_;
  const PictureNames names_;
  SourceInfo info_;
  const std::shared_ptr<StreamHealth> health_ = std::make_shared<StreamHealth>();
  cv::Mat picture_;                      // RGB or grey
  Frame other_;                          // its pixels, if FFmpeg decoded it
  std::int64_t next_ = 0, resumes_ = 0;  // the end of the latest gap
};

}  // namespace

std::string opencv_version() {
  return cv::getVersionString();
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
  return std::make_unique<ImagesSource>(options);
}

}  // namespace millrace::io
