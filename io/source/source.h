#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "io/source/frame.h"

namespace millrace::io {

/// How a broken live stream is reopened. Waits run from the start of one attempt to the next.
struct ReconnectOptions {
  using milliseconds = std::chrono::milliseconds;

  bool enabled = true;         ///< false: a broken live stream ends like any other
  milliseconds silence{2500};  ///< broken after this long without a picture, or three frame times
  milliseconds open_limit{10000};  ///< an attempt fails after this long without a picture
  milliseconds least{500};         ///< shortest wait
  milliseconds most{10000};        ///< longest wait
  std::uint64_t seed = 0;          ///< of the waits' jitter; 0: random
};

/// The user's request. `width` or `height` 0: the source's own size.
struct SourceOptions {
  std::string uri;
  int width = 0;
  int height = 0;
  int channels = 3;                       ///< 3: RGB, 1: grey
  double fps = 0.0;                       ///< of sources without a rate (images, synth); 0: 25
  std::uint64_t seed = 0;                 ///< synth: which scene; images by class: their order
  std::int64_t max_pixels = 7680 * 4320;  ///< per picture; larger ones are not decoded
  std::vector<std::string> classes;       ///< names of images' folders; empty: alphabetical
  ReconnectOptions reconnect;
};

/// Properties of an open source. 0: unknown.
struct SourceInfo {
  std::string kind;  ///< "gstreamer", "ffmpeg", "images", "synth"
  std::string caps;  ///< the stream's format, in the backend's words
  int width = 0;     ///< the stream's own size, unscaled
  int height = 0;
  double fps = 0.0;  ///< per second
  double duration_s = 0.0;
  int classes = 0;    ///< of the frames' labels; 0: no labels
  bool live = false;  ///< frames arrive at the stream's own rate, read or not
};

/// A source that can't be opened, or broke. Names source and cause, without the URI's credentials.
struct SourceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class ReadStatus {
  frame,    ///< `out` holds the next frame
  timeout,  ///< nothing came in time; read again
  corrupt,  ///< one picture could not be decoded and was skipped
  end,      ///< the stream is over
};

/// State of a source's connection. Written by the source, read by any thread; outlives the source.
/// Not part of a run's frame counts, which start where a frame arrives.
class StreamHealth {
 public:
  std::atomic<bool> connected{true};
  std::atomic<std::int64_t> breaks{0};         ///< times the stream broke or fell silent
  std::atomic<std::int64_t> attempts{0};       ///< to reopen it, including failed ones
  std::atomic<std::int64_t> reconnects{0};     ///< attempts that gave a picture
  std::atomic<std::int64_t> frames_since{0};   ///< since the last connection
  std::atomic<std::int64_t> lost_upstream{0};  ///< estimate: frames that never arrived
  std::atomic<std::int64_t> away_ms{0};        ///< over all breaks

  /// Why it last broke or could not be opened: one line without credentials; "": never.
  std::string last_error() const {
    const std::lock_guard lock(mutex_);
    return last_error_;
  }
  void set_last_error(const std::string& error) {
    const std::lock_guard lock(mutex_);
    last_error_ = error;
  }

  /// Lines for users since the last call, such as one for each refused picture.
  std::vector<std::string> take_notes() const {
    const std::lock_guard lock(mutex_);
    return std::exchange(notes_, {});
  }
  void note(std::string line) {
    constexpr std::size_t kMost = 10'000;  // if nobody takes them
    const std::lock_guard lock(mutex_);
    if (notes_.size() < kMost) notes_.push_back(std::move(line));
  }

 private:
  mutable std::mutex mutex_;
  std::string last_error_;
  mutable std::vector<std::string> notes_;
};

/// A stream of frames. Used by one thread at a time, not always the same.
class Source {
 public:
  virtual ~Source() = default;
  virtual SourceInfo info() const = 0;

  /// Waits at most `timeout` for the next frame and writes pixels, size, channels and pts of `out`,
  /// whose storage is reused. Frames have the stream's own size, which may change at any frame; see
  /// `Resizer`. Throws SourceError if the stream breaks.
  virtual ReadStatus read(Frame& out, std::chrono::milliseconds timeout) = 0;

  /// Restarts at the first frame; false if this source can't.
  virtual bool rewind() = 0;

  /// Non-null; outlives the source. Thread-safe.
  virtual std::shared_ptr<const StreamHealth> health() const {
    return std::make_shared<StreamHealth>();
  }
};

/// Destroys `source` in a thread of its own, since it may hang on a driver or a dead file server.
/// The future is ready once it is gone; without a wait, the thread is abandoned.
std::future<void> destroy(std::unique_ptr<Source> source);

/// Gives frames labels or targets from a file, folder, other stream or people. One thread only.
struct Teller {
  /// Sets `frame`'s label or target. `number` counts from 0, undecodable frames included; `since`:
  /// time since the first frame. A std::runtime_error ends the stream.
  std::function<void(Frame& frame, std::int64_t number, std::chrono::nanoseconds since)> tell;
  int classes = 0;  ///< of its labels; 0: no labels
  /// Restarts at the first frame; false if it can't.
  std::function<bool()> rewind = [] { return true; };
};

/// `source` with labels or targets from `teller`. A rewind restarts at number 0.
std::unique_ptr<Source> with_teller(std::unique_ptr<Source> source, Teller teller);

/// A kind of source, in a table for opener, checks, help and tests.
struct SourceKind {
  const char* scheme;   ///< "rtsp"
  const char* example;  ///< "rtsp://HOST:PORT/PATH"
  const char* summary;  ///< "a camera or a server"
  const char* port;     ///< default of a server's port, whose URI needs a host; "": no server
  bool live;            ///< always live; false: depends on the stream
  std::unique_ptr<Source> (*open)(const SourceOptions&);
  /// Throws SourceError if the URI itself is wrong; opens nothing. Null: only opening can say.
  void (*check)(const SourceOptions&) = nullptr;
};
std::span<const SourceKind> source_kinds();

/// The entry for a URI's scheme; a bare path is a "file". Null: none.
const SourceKind* source_kind(const std::string& uri);
/// "" if the URI's scheme is known, otherwise an error that lists all known schemes. Opens nothing.
std::string scheme_error(const std::string& uri);
/// Throws SourceError for a URI that no source can have. Opens nothing.
void check_source(const SourceOptions& options);

/// Opens a URI and waits for the first frame, so that info() describes the actual stream. A live
/// stream reconnects by itself; see health(). Throws SourceError.
std::unique_ptr<Source> open_source(const SourceOptions& options);

/// `text` with every user:password@ and every secret in a query or property replaced by ***.
std::string redacted(const std::string& text);

std::string gstreamer_version();  ///< "1.22.0", or "" where it is not installed
std::string opencv_version();     ///< "4.6.0", or "" in a build without it

}  // namespace millrace::io
