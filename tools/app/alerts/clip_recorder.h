// The seconds around an event, as a video.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace::app {

struct ClipOptions {
  int channels = 0, height = 0, width = 0;
  double seconds = 0;  ///< before an event and after it
  double fps = 25;
};

/// Keeps the latest frames, each beside its error map, as bytes. One thread sees frames, another
/// writes; between them a film of twice the seconds changes hands. While one is written the other
/// is recorded, so an event that begins meanwhile has less before it. Only the constructor
/// allocates.
class ClipRecorder {
 public:
  static constexpr float kErrorGain = 4.0f;  ///< errors worth a look are a few grey levels

  explicit ClipRecorder(const ClipOptions& options);

  // The thread that sees.
  /// float32 [channels][height][width] in 0..1.
  void see(const float* frame, const float* prediction);
  /// The frames up to now, and as many more, become a clip. False: another one is under way.
  bool keep();
  /// No more frames come: the clip under way ends here.
  void end();

  // The thread that writes.
  bool ready() const { return turn_.load(std::memory_order_acquire) == Turn::full; }
  /// Writes what is ready(), and gives the film back. Throws std::runtime_error.
  void write(const std::string& path);

 private:
  struct Film {
    std::vector<std::uint8_t> bytes;  ///< a ring of pictures, [height][2 * width][channels]
    std::int64_t seen = 0;
  };
  enum class Turn { recording, full };  ///< full: the other film is the writer's

  std::int64_t places() const { return 2 * before_ + 1; }

  const ClipOptions options_;
  const std::int64_t before_;  ///< frames
  const std::size_t picture_;  ///< bytes
  Film films_[2];
  int recorded_ = 0;        ///< which film is
  std::int64_t left_ = -1;  ///< frames until the clip is whole; -1: none is under way
  std::atomic<Turn> turn_{Turn::recording};
};

}  // namespace millrace::app
