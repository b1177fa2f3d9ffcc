#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "io/queue/planar.h"
#include "io/video/video_writer.h"

namespace millrace::app {

struct ClipOptions {
  int channels = 0, height = 0, width = 0;
  double seconds = 0;  ///< before and after an event
  double fps = 25;
};

/// Stores the latest frames, each beside its error map, as bytes. One thread records, another
/// writes; they swap two films, each twice `seconds` long. An event that begins while a film is
/// written therefore has less footage before it. Only the constructor allocates.
class ClipRecorder {
 public:
  explicit ClipRecorder(const ClipOptions& options)
      : options_(options),
        before_(std::max<std::int64_t>(1, std::llround(options.seconds * options.fps))),
        off_(std::size_t(options.channels * options.height * options.width)) {
    seen_.reshape(options.width, options.height, options.channels);
    error_ = seen_;
    for (Film& film : films_) {
      film.pictures.resize(std::size_t(places()));
      for (io::Frame& both : film.pictures) io::side_by_side(seen_, error_, both);
    }
  }

  // Recording thread. Both are float32 [channels][height][width] in 0..1.
  void see(const float* frame, const float* prediction) {
    io::from_planar(frame, options_.channels, options_.height, options_.width, seen_);
    io::shown_error({prediction, off_.size()}, {frame, off_.size()}, off_);
    io::from_planar(off_.data(), options_.channels, options_.height, options_.width, error_);
    Film& film = films_[recorded_];
    io::side_by_side(seen_, error_, film.pictures[std::size_t(film.seen++ % places())]);
    if (left_ > 0) --left_;
    if (left_ == 0) end();
  }
  /// Starts a clip of the latest frames and as many more. False: one is already being recorded.
  bool keep() {
    if (left_ >= 0 || ready()) return false;
    left_ = before_;
    return true;
  }
  void end() {
    if (left_ < 0) return;
    left_ = -1;
    recorded_ = 1 - recorded_;
    films_[recorded_].seen = 0;
    turn_.store(Turn::full, std::memory_order_release);
  }

  // Writing thread.
  bool ready() const { return turn_.load(std::memory_order_acquire) == Turn::full; }
  /// Writes the film that is ready() and returns it to the recorder. Throws std::runtime_error.
  void write(const std::string& path) {
    Film& film = films_[1 - recorded_];
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
    for (std::int64_t n = film.seen - count; n < film.seen; ++n) {
      io::Frame& picture = film.pictures[std::size_t(n % places())];
      picture.pts = std::chrono::nanoseconds(
          std::llround(1e9 * double(n - film.seen + count) / options_.fps));
      writer->write(picture);
    }
    writer->finish();
  }

 private:
  struct Film {
    std::vector<io::Frame> pictures;
    std::int64_t seen = 0;
  };
  enum class Turn { recording, full };  ///< full: the other film is the writer's

  std::int64_t places() const { return 2 * before_ + 1; }

  const ClipOptions options_;
  const std::int64_t before_;  ///< frames
  std::vector<float> off_;
  io::Frame seen_, error_;
  Film films_[2];
  int recorded_ = 0;
  std::int64_t left_ = -1;  ///< frames until the clip is complete; -1: no clip
  std::atomic<Turn> turn_{Turn::recording};
};

}  // namespace millrace::app
