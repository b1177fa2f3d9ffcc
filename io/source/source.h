// Where frames come from: one interface, one opener, one file for each kind of source.
#pragma once

#include <chrono>     // read time-outs
#include <cstdint>    // seed
#include <memory>     // std::unique_ptr<Source>
#include <span>       // kinds of source
#include <stdexcept>  // SourceError
#include <string>     // URIs

#include "io/source/frame.h"
#include "io/source/stream_health.h"  // of sources that never break off

namespace millrace::io {

/// How a live stream that broke off is opened again. The waits are between the starts of attempts.
struct ReconnectOptions {
  using milliseconds = std::chrono::milliseconds;

  bool enabled = true;             ///< false: a live stream that breaks ends like any other
  milliseconds silence{2500};      ///< no picture for so long: broken (or three, if they are rare)
  milliseconds open_limit{10000};  ///< an attempt that gives no picture for so long has failed
  milliseconds least{500};         ///< shortest wait
  milliseconds most{10000};        ///< longest wait
  std::uint64_t seed = 0;          ///< of the waits' jitter; 0: another one each time
};

/// What the user asked for. `width` or `height` 0: the source's own size.
struct SourceOptions {
  std::string uri;
  int width = 0;
  int height = 0;
  int channels = 3;        ///< 3: RGB, 1: grey
  double fps = 0.0;        ///< rate of sources that have none (images, synth); 0: 25
  std::uint64_t seed = 0;  ///< synth: which scene; images by class: their order
  ReconnectOptions reconnect;
};

/// What an opened source says of itself. 0 means unknown.
struct SourceInfo {
  std::string kind;  ///< "gstreamer", "opencv", "images", "synth"
  std::string caps;  ///< the stream's own format, in the backend's words
  int width = 0;     ///< the stream's own size, before any scaling
  int height = 0;
  double fps = 0.0;  ///< frames a second
  double duration_s = 0.0;
  int classes = 0;    ///< of its frames' labels; 0: it tells none
  bool live = false;  ///< frames come at their own time and can't be waited for
};

/// A source that can't be opened or broke off. The message names the source and the cause;
/// credentials in a URI are never part of it.
struct SourceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class ReadStatus {
  frame,    ///< `out` holds the next frame
  timeout,  ///< nothing came in time; ask again
  corrupt,  ///< one picture could not be decoded and was passed over
  end,      ///< the stream is over
};

/// A stream of frames. One thread at a time; it may move between threads between calls.
class Source {
 public:
  virtual ~Source() = default;
  virtual SourceInfo info() const = 0;

  /// Waits at most `timeout` for the next frame and writes pixels, size, channels and pts of `out`
  /// (storage is reused, so a steady stream allocates nothing here). A frame has the stream's own
  /// size, which may change in mid-stream; see `Resizer`. Throws SourceError if the stream breaks.
  virtual ReadStatus read(Frame& out, std::chrono::milliseconds timeout) = 0;

  /// Starts again from the first frame; false if this source can't.
  virtual bool rewind() = 0;

  /// How the connection fares; any thread may read it, also when the source is gone. Never null.
  virtual std::shared_ptr<const StreamHealth> health() const {
    return std::make_shared<StreamHealth>();
  }
};

/// One kind of source: an entry in a table that opener, checks, help and tests read.
struct SourceKind {
  const char* scheme;   ///< "rtsp"
  const char* example;  ///< "rtsp://HOST:PORT/PATH"
  const char* summary;  ///< "a camera or a server"
  const char* port;     ///< that a server listens at unless the URI says so; "": no server
  bool live;            ///< always; false: never, or asked of the stream
  std::unique_ptr<Source> (*open)(const SourceOptions&);
};
std::span<const SourceKind> source_kinds();

/// The entry for a URI's scheme; a bare path is a "file". Null: there is none.
const SourceKind* source_kind(const std::string& uri);
/// "" if a source of the URI's scheme can be asked for; else what is wrong, and all known schemes.
/// Opens nothing.
std::string scheme_error(const std::string& uri);

/// Opens a URI of any of these kinds.
/// The first frame has been seen when this returns, so that info() is what the stream really is.
/// A live stream is opened again by itself when it breaks off or falls silent; see health().
/// Throws SourceError.
std::unique_ptr<Source> open_source(const SourceOptions& options);

/// `uri` with any user:password@ replaced by ***@. For every message and file that names a URI.
std::string redacted(const std::string& uri);

}  // namespace millrace::io
