// Pictures out as video: to a file, or to whoever looks on by RTSP.
#pragma once

#include <chrono>   // patience
#include <cstdint>  // counts
#include <memory>   // std::unique_ptr<VideoWriter>
#include <string>   // where to

#include "io/source/frame.h"

namespace millrace::io {

struct VideoWriterOptions {
  std::string to;  ///< FILE.mp4, FILE.mkv, or rtsp://[USER:PASSWORD@]ADDRESS:PORT/PATH to serve at
  int width = 0;   ///< of every frame
  int height = 0;
  int channels = 3;  ///< 3: RGB, 1: grey
  double fps = 0.0;  ///< about how many frames a second will come; 0: 25
  int waiting = 4;   ///< frames that may wait for the encoder
  /// RTSP: a viewer that gives no sign of life for so long is let go.
  std::chrono::seconds patience{60};
};

/// Encodes frames in threads of its own. One thread calls write() and finish(); the rest any
/// thread.
class VideoWriter {
 public:
  /// Without finish(): as if it had been called, but nobody learns whether it worked.
  virtual ~VideoWriter() = default;

  /// Copies `frame` and returns at once. If the encoder is behind, or has failed, the frame is
  /// dropped and counted. Throws std::invalid_argument if it has not the size agreed on.
  virtual void write(const Frame& frame) = 0;
  /// Waits until everything written has been encoded, and ends the file, or the service. Throws
  /// std::runtime_error "WHERE: cause" if that failed, now or before. Call it once.
  virtual void finish() = 0;

  /// Frames handed to the encoder; for RTSP those that came while somebody looked on.
  virtual std::int64_t written() const = 0;
  virtual std::int64_t dropped() const = 0;
  /// Where the video is to be had: the file, or the URI with the port that was free.
  virtual std::string where() const = 0;
};

/// A file lies beside its name, as FILE.part, until it is finished; one that was broken off can be
/// played up to its last second. RTSP is served on loopback where no address is named, port 0 is
/// any free one, and an address that others reach needs USER:PASSWORD, which viewers are asked for
/// (digest); several may look on, and one that is slow misses pictures without holding up
/// others. Frames smaller than encoders take, or of odd sides, are enlarged by a whole factor.
/// Throws std::runtime_error "WHERE: cause".
std::unique_ptr<VideoWriter> open_video_writer(const VideoWriterOptions& options);

/// Writes `left` and `right`, of one height and as many channels, side by side into `out`, with
/// `left`'s id and times. Reuses out's storage.
void side_by_side(const Frame& left, const Frame& right, Frame& out);

}  // namespace millrace::io
