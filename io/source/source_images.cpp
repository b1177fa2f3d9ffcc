// images:DIR/%05d.png, images:DIR, images:DIR/*.png: numbered or sorted pictures as a stream. If
// DIR has folders of pictures, each folder is a class, and the pictures are shuffled.
#include <filesystem>
#include <optional>
#include <stdexcept>

#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include "io/source/image_list.h"
#include "io/source/picture_headers.h"
#include "io/source/source_kinds.h"

namespace millrace::io {
namespace {

/// The paths of a stream of pictures, in order; "" after the last.
class PictureNames {
 public:
  PictureNames(const std::string& text, std::uint64_t seed) {
    if (text.find('%') == std::string::npos) {
      labelled_ = list_classes(text, seed);
      if (labelled_.classes > 0) return;
      for (std::string& path : list_pictures(text)) labelled_.pictures.emplace_back(path, -1);
      return;
    }
    numbered_ = parse_numbered(text);
    first_ = first_number(numbered_);
  }

  std::string at(std::int64_t index) const {
    if (first_ < 0) return index < count() ? labelled_.pictures[std::size_t(index)].first : "";
    std::string path = numbered_.path(first_ + index);
    std::error_code ignored;
    return std::filesystem::exists(path, ignored) ? path : "";
  }

  /// 0 if unknown: a numbered stream ends at the first missing number.
  std::int64_t count() const { return std::int64_t(labelled_.pictures.size()); }

  int label(std::int64_t index) const {
    return first_ < 0 ? labelled_.pictures[std::size_t(index)].second : -1;
  }
  int classes() const { return labelled_.classes; }

 private:
  LabelledPictures labelled_;
  NumberedName numbered_;
  std::int64_t first_ = -1;
};

class ImagesSource : public Source {
 public:
  ImagesSource(const SourceOptions& options, PictureNames names)
      : options_(options), names_(std::move(names)), fps_(rate_or_default(options.fps)) {
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    if (names_.at(0).empty()) throw source_error(options_, "no picture is there");
    for (std::int64_t i = 0; !decode(names_.at(i)); ++i) {
      if (!names_.at(i + 1).empty()) continue;
      throw source_error(options_, large_.empty() ? "no picture can be decoded" : large_);
    }
    info_.kind = "images";
    info_.caps = std::filesystem::path(names_.at(0)).extension().string() + " files";
    info_.width = picture_.cols;
    info_.height = picture_.rows;
    info_.fps = fps_;
    info_.classes = names_.classes();
    info_.duration_s = double(names_.count()) / fps_;
  }

  SourceInfo info() const override { return info_; }

  ReadStatus read(Frame& out, std::chrono::milliseconds) override {
    const std::string path = names_.at(next_);
    if (path.empty()) return ReadStatus::end;
    const std::int64_t number = next_++;
    if (!decode(path)) return ReadStatus::corrupt;
    out.reshape(picture_.cols, picture_.rows, options_.channels);
    out.label = names_.label(number);
    out.pts = std::chrono::nanoseconds(std::int64_t(double(number) * 1e9 / fps_));
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
  const double fps_;
  SourceInfo info_;
  cv::Mat picture_;
  std::string large_;  // why the latest oversized picture was refused
  std::int64_t next_ = 0;
};

}  // namespace

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
