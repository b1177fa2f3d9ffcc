#include "tools/app/alerts/clip_recorder.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "io/video/video_writer.h"

namespace millrace::app {
namespace {

std::uint8_t byte(float value) {
  return std::uint8_t(std::clamp(value, 0.0f, 1.0f) * 255.0f + 0.5f);
}

}  // namespace

ClipRecorder::ClipRecorder(const ClipOptions& options)
    : options_(options),
      before_(std::max<std::int64_t>(1, std::llround(options.seconds * options.fps))),
      picture_(2 * std::size_t(options.channels) * std::size_t(options.height) *
               std::size_t(options.width)) {
  for (Film& film : films_) film.bytes.resize(std::size_t(places()) * picture_);
}

void ClipRecorder::see(const float* frame, const float* prediction) {
  Film& film = films_[recorded_];
  const std::size_t plane = std::size_t(options_.height) * std::size_t(options_.width);
  const std::size_t channels = std::size_t(options_.channels), width = std::size_t(options_.width);
  std::uint8_t* const out = film.bytes.data() + std::size_t(film.seen++ % places()) * picture_;
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t i = 0; i < plane; ++i) {
      const float there = frame[c * plane + i];
      const std::size_t at = (i / width * 2 * width + i % width) * channels + c;
      out[at] = byte(there);
      out[at + width * channels] = byte(kErrorGain * std::abs(there - prediction[c * plane + i]));
    }
  }
  if (left_ > 0) --left_;
  if (left_ == 0) end();
}

bool ClipRecorder::keep() {
  if (left_ >= 0 || ready()) return false;
  left_ = before_;
  return true;
}

void ClipRecorder::end() {
  if (left_ < 0) return;
  left_ = -1;
  recorded_ = 1 - recorded_;
  films_[recorded_].seen = 0;
  turn_.store(Turn::full, std::memory_order_release);
}

void ClipRecorder::write(const std::string& path) {
  const Film& film = films_[1 - recorded_];
  struct GiveBack {
    std::atomic<Turn>& turn;
    ~GiveBack() { turn.store(Turn::recording, std::memory_order_release); }
  } const give_back{turn_};
  const std::int64_t count = std::min(film.seen, places());
  const auto writer = io::open_video_writer({.to = path,
                                             .width = 2 * options_.width,
                                             .height = options_.height,
                                             .channels = options_.channels,
                                             .fps = options_.fps,
                                             .waiting = int(places()) + 1});
  io::Frame picture;
  picture.width = 2 * options_.width;
  picture.height = options_.height;
  picture.channels = options_.channels;
  for (std::int64_t n = film.seen - count; n < film.seen; ++n) {
    const auto from = film.bytes.begin() + std::ptrdiff_t(std::size_t(n % places()) * picture_);
    picture.pixels.assign(from, from + std::ptrdiff_t(picture_));
    picture.pts =
        std::chrono::nanoseconds(std::llround(1e9 * double(n - film.seen + count) / options_.fps));
    writer->write(picture);
  }
  writer->finish();
}

}  // namespace millrace::app
