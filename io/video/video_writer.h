#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "io/queue/planar.h"

namespace millrace::io {

struct VideoWriterOptions {
  std::string to;  ///< FILE.mp4, FILE.mkv, or rtsp://[USER:PASSWORD@]ADDRESS:PORT/PATH to serve at
  int width = 0;   ///< of every frame
  int height = 0;
  int channels = 3;          ///< 3: RGB, 1: grey
  double fps = 0.0;          ///< approximate frame rate; 0: 25
  int waiting = 4;           ///< most frames waiting for the encoder
  bool every_frame = false;  ///< to a file: write() waits for the encoder, and drops none
  /// RTSP: a viewer silent for this long is dropped
  std::chrono::seconds patience{60};
};

/// Encodes in its own threads. write() and finish(): one thread; the rest is thread-safe.
class VideoWriter {
 public:
  /// Calls finish() if necessary and ignores its errors.
  virtual ~VideoWriter() = default;

  /// Copies `frame` and returns at once, unless `every_frame`. Drops and counts it if the encoder
  /// is behind or has failed. Throws std::invalid_argument if the frame doesn't have the options'
  /// size.
  virtual void write(const Frame& frame) = 0;
  /// Waits until everything is encoded, then closes the file or stops serving. Throws
  /// std::runtime_error "WHERE: cause" if this or any encoding before failed. Call it once.
  virtual void finish() = 0;

  /// Frames passed to the encoder; for RTSP, only while somebody watches.
  std::int64_t written() const { return written_; }
  std::int64_t dropped() const { return dropped_; }
  /// The file, or the URI with the actual port.
  virtual std::string where() const = 0;

 protected:
  void count(bool taken) { ++(taken ? written_ : dropped_); }

 private:
  std::atomic<std::int64_t> written_{0}, dropped_{0};
};

/// "" if video can go to `to`, otherwise why not. Opens nothing.
std::string video_target_error(const std::string& to);

/// A file is named FILE.part until finished; if the process dies, that plays up to its last second.
/// RTSP: without an address, loopback; port 0 is any free one; any other address needs
/// USER:PASSWORD, which viewers must give (digest). Slow viewers miss pictures without delaying
/// others. Frames that are too small for encoders or have odd sides are enlarged by an integer
/// factor. Throws std::runtime_error "WHERE: cause".
std::unique_ptr<VideoWriter> open_video_writer(const VideoWriterOptions& options);

}  // namespace millrace::io
