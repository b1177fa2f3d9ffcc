// Latency from a camera's picture to its prediction, over RTSP on loopback. The time is drawn into
// the picture itself, so the figure includes encoder, network, decoder and all queues.
#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/monitor/clock.h"
#include "engine/monitor/median.h"
#include "io/video/video_writer.h"
#include "tools/app/run.h"
#include "tools/bench/measure.h"

namespace millrace::bench {
namespace {

using namespace std::chrono_literals;

constexpr int kWidth = 256, kHeight = 192;
constexpr int kColumns = 8, kRows = 4;  ///< cells of one bit each: black or white
constexpr auto kPeriod = 40ms;
constexpr std::int64_t kWarmUp = 50;  ///< frames
constexpr double kAbsurd = 10'000;    ///< ms: more is a misread stamp

/// The monotonic clock in microseconds, modulo 2^32.
std::uint32_t now_us() {
  return std::uint32_t(
      std::chrono::duration_cast<std::chrono::microseconds>(engine::Clock::now().time_since_epoch())
          .count());
}

void stamp(io::Frame& frame, std::uint32_t stamp) {
  for (int y = 0; y < frame.height; ++y) {
    for (int x = 0; x < frame.width; ++x) {
      const int cell = y * kRows / frame.height * kColumns + x * kColumns / frame.width;
      std::fill_n(&frame.pixels[(std::size_t(y) * frame.width + x) * frame.channels],
                  frame.channels, std::uint8_t(stamp >> cell & 1 ? 235 : 20));
    }
  }
}

/// Decodes the middle of each cell of a [C,height,width] picture.
std::uint32_t stamp_of(std::span<const float> picture, int width, int height) {
  std::uint32_t stamp = 0;
  for (int cell = 0; cell < kColumns * kRows; ++cell) {
    const int y = (2 * (cell / kColumns) + 1) * height / (2 * kRows),
              x = (2 * (cell % kColumns) + 1) * width / (2 * kColumns);
    stamp |= std::uint32_t(picture[std::size_t(y) * width + x] > 0.5f) << cell;
  }
  return stamp;
}

/// Writes stamped pictures until it is stopped.
void show(const std::stop_token& stop, io::VideoWriter& writer) {
  io::Frame frame;
  frame.reshape(kWidth, kHeight, 3);
  for (auto due = engine::Clock::now(); !stop.stop_requested(); due += kPeriod) {
    std::this_thread::sleep_until(due);
    frame.captured = engine::Clock::now();
    frame.pts = frame.captured.time_since_epoch();
    stamp(frame, now_us());
    writer.write(frame);
  }
}

Json quantiles(const std::vector<double>& values) {
  return {{"p50", engine::quantile(values, 0.5)},
          {"p99", engine::quantile(values, 0.99)},
          {"max", engine::quantile(values, 1)}};
}

}  // namespace

/// {"size", "frames"}: latency from an RTSP camera's picture to its prediction.
const Question kCamera("camera", [](const Json& question) -> Json {
  const auto writer = io::open_video_writer(
      {.to = "rtsp://127.0.0.1:0/camera", .width = kWidth, .height = kHeight, .fps = 25});
  const std::jthread camera(show, std::ref(*writer));
  const int width = question.at("size"), height = width * kHeight / kWidth;
  const std::int64_t frames = question.at("frames");
  app::Config config;
  config.set("source.uri", writer->where());
  config.set("source.width", std::to_string(width));
  config.set("source.height", std::to_string(height));
  std::vector<double> whole, inside;
  std::int64_t unreadable = 0;
  app::Run run(config);
  run.on_prediction([&](const app::Prediction& p) {
    if (p.index < kWarmUp) return;
    const double ms = (now_us() - stamp_of(p.input, width, height)) / 1e3;
    if (ms > kAbsurd) {
      ++unreadable;
    } else {
      whole.push_back(ms);
      inside.push_back(p.latency_ms);
    }
  });
  run.learn(kWarmUp + frames);
  return {{"arm", "camera " + std::to_string(width) + "x" + std::to_string(height)},
          {"size", width},
          {"frames", frames},
          {"unreadable", unreadable},
          {"shown_to_prediction_ms", quantiles(whole)},
          {"capture_to_prediction_ms", quantiles(inside)}};
});

}  // namespace millrace::bench
