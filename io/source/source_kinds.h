// The kinds of source that open_source() chooses from; each in a file of its own.
#pragma once

#include <cstdio>  // seconds as text
#include <memory>  // std::unique_ptr<Source>
#include <string>  // paths

#include "io/source/source.h"
#include "io/source/uri.h"

namespace millrace::io {

/// Frames a second of a source that has no rate of its own.
inline double rate_or_default(double fps) {
  return fps > 0.0 ? fps : 25.0;
}

/// The URI that `options` asks for, fit to be shown, with a cause after it.
inline SourceError source_error(const SourceOptions& options, const std::string& cause) {
  return SourceError(redacted(options.uri) + ": " + cause);
}

/// Throws if a file that says it lasts `duration_s` ended at `reached_s`, clearly before that.
inline void require_whole(const SourceOptions& options, double reached_s, double duration_s) {
  if (reached_s >= 0.95 * duration_s) return;  // containers are often off by a little
  char cause[80];
  std::snprintf(cause, sizeof cause, "ends at %.1f s of %.1f s (truncated?)", reached_s,
                duration_s);
  throw source_error(options, cause);
}

/// This build can't decode what is otherwise there to be read: another backend may.
struct NoDecoder : SourceError {
  using SourceError::SourceError;
};

/// Adds an entry to the table, before any thread but the caller's uses that. Throws
/// std::invalid_argument if the scheme is taken.
void add_source_kind(const SourceKind& kind);

// All throw SourceError. First those of the table; in a build without GStreamer and OpenCV all but
// open_synth() refuse.
std::unique_ptr<Source> open_file(const SourceOptions& options);
std::unique_ptr<Source> open_stream(const SourceOptions& options);
std::unique_ptr<Source> open_synth(const SourceOptions& options);
std::unique_ptr<Source> open_images(const SourceOptions& options);
std::unique_ptr<Source> open_gstreamer(const SourceOptions& options);  ///< or NoDecoder
/// The same without waiting for the first picture: it, or what went wrong, comes by read(), and
/// info() holds from the first picture on.
std::unique_ptr<Source> start_gstreamer_source(const SourceOptions& options);
std::unique_ptr<Source> open_opencv(const SourceOptions& options, const std::string& path);

}  // namespace millrace::io
