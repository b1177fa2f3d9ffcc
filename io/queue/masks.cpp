#include "io/queue/targets.h"

#include <charconv>
#include <filesystem>
#include <map>

#include <opencv2/imgcodecs.hpp>

#include "io/source/codecs.h"
#include "io/source/picture_headers.h"
#include "io/source/source_images.h"

namespace millrace::io {
namespace {

/// The number at the end of a file's name; -1: none.
std::int64_t number_of(const std::string& path) {
  const std::string stem = std::filesystem::path(path).stem().string();
  const std::size_t start = stem.find_last_not_of("0123456789") + 1;
  std::int64_t number = -1;
  std::from_chars(stem.data() + start, stem.data() + stem.size(), number);
  return number;
}

std::map<std::int64_t, std::string> masks_in(const std::string& folder) {
  std::error_code failed;
  if (!std::filesystem::is_directory(folder, failed)) throw MaskError(folder + ": no such folder");
  std::map<std::int64_t, std::string> all;
  for (const std::string& path : list_pictures(folder)) {
    const std::int64_t number = number_of(path);
    if (number < 0) throw MaskError(path + ": its name must end in a frame number");
    const auto [other, fresh] = all.emplace(number, path);
    if (!fresh) throw MaskError(path + ": has the same frame number as " + other->second);
  }
  if (all.empty()) throw MaskError(folder + ": no pictures found");
  return all;
}

/// Maps 0, 85, 170, 255 of 2 bits back to 0, 1, 2, 3, and so on; false if it is not stretched.
bool unstretch(cv::Mat& picture, int bits) {
  const int step = 255 / ((1 << bits) - 1);
  bool whole = true;
  for (auto value = picture.begin<std::uint8_t>(); value != picture.end<std::uint8_t>(); ++value) {
    whole = whole && *value % step == 0;
    *value = std::uint8_t(*value / step);
  }
  return whole;
}

cv::Mat read_mask(const std::string& path) {
  cv::Mat picture;
  try {
    picture = codecs().imread(path, cv::IMREAD_UNCHANGED);
  } catch (const cv::Exception&) {  // some decoders throw
  }
  if (picture.empty()) throw MaskError(path + ": can't be decoded");
  const int bits = grey_bits(path);
  if (picture.type() != CV_8UC1 || (bits > 0 && bits < 8 && !unstretch(picture, bits)))
    throw MaskError(path + ": is not grey with 1 to 8 bits a pixel, its class");
  return picture;
}

cv::Mat mask_of(const std::string& path, const Frame& frame) {
  const cv::Mat picture = read_mask(path);
  if (picture.cols != frame.width || picture.rows != frame.height)
    throw MaskError(path + ": is " + size_text(picture.cols, picture.rows) + ", its frame " +
                    size_text(frame.width, frame.height));
  return picture;
}

/// One-hot at the view's size: [classes][height][width]; empty if no pixel has a class.
void spread(const cv::Mat& mask, const std::string& path, int classes, const ResizerOptions& view,
            std::vector<float>& out) {
  const Region seen = clipped(view.region, mask.cols, mask.rows);
  const auto [from, to] = place(seen, view.width, view.height, view.fit);
  const std::size_t plane = std::size_t(view.width) * view.height;
  out.assign(plane * classes, 0.0f);
  bool told = false;
  for (int y = 0; y < to.height; ++y) {
    const auto* const row =
        mask.ptr<std::uint8_t>(from.y + (2 * y + 1) * from.height / (2 * to.height));
    for (int x = 0; x < to.width; ++x) {
      const int label = row[from.x + (2 * x + 1) * from.width / (2 * to.width)];
      if (label == kNoClass) continue;
      if (label >= classes) {
        throw MaskError(path + ": contains class " + std::to_string(label) + ", the network has " +
                        std::to_string(classes));
      }
      out[label * plane + std::size_t(to.y + y) * view.width + (to.x + x)] = 1;
      told = true;
    }
  }
  if (!told) out.clear();
}

}  // namespace

void require_masks(const std::string& folder) {
  read_mask(masks_in(folder).begin()->second);
}

Teller mask_teller(const std::string& folder, int classes, const ResizerOptions& view, int width,
                   int height) {
  std::map<std::int64_t, std::string> masks = masks_in(folder);
  for (const auto& [number, path] : masks) {
    const std::optional<PictureSize> size = picture_size(path);
    if (!size) throw MaskError(path + ": is not a picture");
    if (size->width != width || size->height != height)
      throw MaskError(path + ": is " + size_text(size->width, size->height) + ", frames are " +
                      size_text(width, height));
  }
  return {.tell = [masks = std::move(masks), classes, view](Frame& frame, auto number, auto) {
    frame.target.clear();
    if (const auto found = masks.find(number); found != masks.end())
      spread(mask_of(found->second, frame), found->second, classes, view, frame.target);
  }};
}

}  // namespace millrace::io
