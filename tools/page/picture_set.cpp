#include "tools/page/picture_set.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <opencv2/imgproc.hpp>

#include "io/queue/planar.h"
#include "io/queue/targets.h"
#include "io/source/codecs.h"

namespace millrace::page {
namespace {

constexpr int kSmall = 160;                       // smaller pictures are doubled
constexpr int kQuality = 90, kLargeQuality = 75;  // JPEG, percent
constexpr int kWidest = 960;

// Enlarges small pictures: JPEG, which stores colour at half the resolution, would smear them.
int enlargement(const PictureShape& shape) {
  return std::max(shape.width, shape.height) < kSmall ? 2 : 1;
}

template <class Pixel>
cv::Mat draw(const PictureShape& shape, int channels, const Pixel& pixel) {
  const int times = enlargement(shape);
  cv::Mat out(shape.height * times, shape.width * times, CV_8UC(channels));
  std::uint8_t bytes[3];
  for (int y = 0; y < out.rows; ++y) {
    std::uint8_t* to = out.ptr(y);
    for (int x = 0; x < shape.width; ++x) {
      pixel(y / times, x, bytes);
      for (int i = 0; i < times; ++i) to = std::copy_n(bytes, channels, to);
    }
  }
  return out;
}

cv::Mat class_map(const PictureShape& shape, const float* classes) {
  return draw(shape, 3, [&](int y, int x, std::uint8_t* out) {
    const float number = classes[std::size_t(y) * shape.width + x];
    const auto colour = class_colour(number >= 0 ? int(number) : io::kNoClass);
    std::reverse_copy(colour.begin(), colour.end(), out);  // RGB to BGR
  });
}

cv::Mat plain(const PictureShape& shape, const float* planar) {
  if (shape.classes) return class_map(shape, planar);
  const std::size_t plane = std::size_t(shape.height) * shape.width;
  return draw(shape, shape.channels, [&](int y, int x, std::uint8_t* out) {
    const float* at = planar + std::size_t(y) * shape.width + x;
    for (int c = shape.channels - 1; c >= 0; --c)
      *out++ = io::byte_of(at[c * plane]);  // RGB to BGR
  });
}

cv::Mat error(const PictureShape& shape, const float* target, const float* prediction) {
  static const cv::Mat colours = [] {
    cv::Mat ramp(1, 256, CV_8UC1), out;
    for (int i = 0; i < 256; ++i) ramp.at<std::uint8_t>(i) = std::uint8_t(i);
    cv::applyColorMap(ramp, out, cv::COLORMAP_INFERNO);
    return out;
  }();
  const std::size_t plane = std::size_t(shape.height) * shape.width;
  return draw(shape, 3, [&](int y, int x, std::uint8_t* out) {
    const std::size_t at = std::size_t(y) * shape.width + x;
    float sum = 0;
    for (int c = 0; c < shape.channels; ++c)
      sum += std::abs(target[at + c * plane] - prediction[at + c * plane]);
    if (shape.classes && target[at] < 0) sum = 0;  // pixels without a class can't be wrong
    std::copy_n(colours.ptr(0) + 3 * io::byte_of(sum * io::kErrorGain / float(shape.channels)), 3,
                out);
  });
}

void put(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += char(value >> (8 * i) & 0xff);
}

}  // namespace

cv::Mat shown(const io::Frame& frame) {
  if (frame.bytes() == 0 || frame.pixels.size() < frame.bytes()) return {};
  const cv::Mat own(frame.height, frame.width, CV_8UC(frame.channels),
                    const_cast<std::uint8_t*>(frame.pixels.data()));
  cv::Mat small, out;
  const double scale = std::min(1.0, double(kWidest) / frame.width);
  cv::resize(own, small, {}, scale, scale, cv::INTER_AREA);
  if (frame.channels == 1) return small;
  cv::cvtColor(small, out, cv::COLOR_RGB2BGR);
  return out;
}

std::string png_of_input(const Pictures& pictures) {
  return io::codecs().encode(plain(pictures.input_shape, pictures.input.data()), 0);
}

PictureSet::PictureSet(const Pictures& from, cv::Mat camera)
    : sample_(from.sample),
      pictures_{
          plain(from.input_shape, from.input.data()), plain(from.output_shape, from.target.data()),
          plain(from.output_shape, from.prediction.data()),
          error(from.output_shape, from.target.data(), from.prediction.data()), std::move(camera)} {
}

Bytes PictureSet::jpeg(std::size_t index) {
  if (!files_[index]) {
    const cv::Mat& picture = pictures_[index];
    const int quality = index == kCamera ? kLargeQuality : kQuality;
    files_[index] = std::make_shared<const std::string>(
        picture.empty() ? "" : io::codecs().encode(picture, quality));
  }
  return files_[index];
}

Bytes PictureSet::message() {
  if (!message_) {
    std::string out;
    put(out, std::uint64_t(sample_), 8);
    for (std::size_t i = 0; i < files_.size(); ++i) put(out, jpeg(i)->size(), 4);
    for (std::size_t i = 0; i < files_.size(); ++i) out += *jpeg(i);
    message_ = std::make_shared<const std::string>(std::move(out));
  }
  return message_;
}

}  // namespace millrace::page
