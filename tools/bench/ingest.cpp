#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#include "io/queue/planar.h"
#include "io/queue/resizer.h"
#include "tools/bench/measure.h"

namespace millrace::bench {
namespace {

constexpr int kFrames = 9;  // a run's queue when nothing is dropped, and the frame being written
constexpr int kSlots = 3;   // partime's with two stages

}  // namespace

/// {"width", "height", "channels", "seconds"}: microseconds from decoded frame to sample, per way.
const Question kIngest("ingest", [](const Json& question) -> Json {
  at::set_num_threads(1);
  cv::setNumThreads(1);
  const int width = question.at("width"), height = question.at("height"),
            channels = question.at("channels");
  std::vector<io::Frame> frames;
  for (int i = 0; i < kFrames; ++i) {
    io::Frame& frame = frames.emplace_back();
    frame.reshape(width, height, channels);
    for (std::size_t k = 0; k < frame.bytes(); ++k) frame.pixels[k] = std::uint8_t(k * 31 + i);
  }
  // Reads one byte per byte of the picture, writes a float: the traffic of copying 2.5 bytes.
  const std::size_t copied = frames[0].bytes() * 5 / 2;
  std::vector<at::Tensor> slots;
  std::vector<std::vector<std::uint8_t>> from, to;
  for (int i = 0; i < kSlots; ++i) {
    slots.push_back(at::zeros({1, channels, height, width}));
    from.emplace_back(copied, std::uint8_t(i));
    to.emplace_back(copied, std::uint8_t(0));
  }
  io::Resizer resizer(width, height);
  cv::Mat rgb, floats;
  const auto ours = [&](int n) {
    io::to_planar(resizer.fit(frames[n % kFrames]), slots[n % kSlots].mutable_data_ptr<float>());
  };
  const auto by_memcpy = [&](int n) {
    std::memcpy(to[n % kSlots].data(), from[n % kSlots].data(), copied);
  };
  const auto by_opencv = [&](int n) {
    cv::Mat picture(height, width, CV_MAKETYPE(CV_8U, channels), frames[n % kFrames].pixels.data());
    if (channels == 3) {
      cv::cvtColor(picture, rgb, cv::COLOR_BGR2RGB);  // OpenCV decodes to BGR
      picture = rgb;
    }
    picture.convertTo(floats, CV_32F, 1.0 / 255);
    const at::Tensor tensor = at::from_blob(floats.data, {1, height, width, channels});
    slots[n % kSlots].copy_(tensor.permute({0, 3, 1, 2}));
  };
  const double seconds = question.at("seconds");
  return {{"ingest_us", 1e3 * median_ms(seconds, 2, ours)},
          {"memcpy_us", 1e3 * median_ms(seconds, 2, by_memcpy)},
          {"opencv_us", 1e3 * median_ms(seconds, 2, by_opencv)}};
});

}  // namespace millrace::bench
