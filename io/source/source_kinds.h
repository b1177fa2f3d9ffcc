// The openers that open_source() chooses from.
#pragma once

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "io/source/source.h"
#include "io/source/uri.h"

namespace millrace::io {

/// Frames a second of a source that has no rate of its own.
inline double rate_or_default(double fps) {
  return fps > 0.0 ? fps : 25.0;
}

/// "URI: cause", without the URI's credentials.
inline SourceError source_error(const SourceOptions& options, const std::string& cause) {
  std::string uri = redacted(options.uri);
  std::replace(uri.begin(), uri.end(), '\n', '?');  // an error is one line
  return SourceError(uri + ": " + cause);
}

/// Of a picture that is refused.
inline std::string too_many_pixels(std::int64_t width, std::int64_t height, std::int64_t most) {
  return "a picture of " + size_text(width, height) +
         " has more pixels than source.max_pixels = " + std::to_string(most) + " allows";
}

/// Throws if a file of `duration_s` by its header ended at `reached_s`, clearly before that.
inline void require_whole(const SourceOptions& options, double reached_s, double duration_s) {
  if (reached_s >= 0.95 * duration_s) return;  // containers are often off by a little
  char cause[80];
  std::snprintf(cause, sizeof cause, "ends at %.1f s of %.1f s (truncated?)", reached_s,
                duration_s);
  throw source_error(options, cause);
}

/// There is no decoder for this stream; another backend may have one.
struct NoDecoder : SourceError {
  using SourceError::SourceError;
};

/// Adds an entry to the table. Call it before other threads use the table. Throws
/// std::invalid_argument if the scheme is taken.
void add_source_kind(const SourceKind& kind);

// All throw SourceError. In a build without GStreamer and OpenCV only open_synth() works.
std::unique_ptr<Source> open_file(const SourceOptions& options);
std::unique_ptr<Source> open_stream(const SourceOptions& options);
std::unique_ptr<Source> open_synth(const SourceOptions& options);
std::unique_ptr<Source> open_images(const SourceOptions& options);
void check_synth(const SourceOptions& options);
void check_images(const SourceOptions& options);
/// Or NoDecoder. Without `wait` for the first picture, read() returns it, or throws what went
/// wrong; info() is then valid from the first picture on.
std::unique_ptr<Source> open_gstreamer(const SourceOptions& options, bool wait = true);
std::unique_ptr<Source> open_opencv(const SourceOptions& options, const std::string& path);

}  // namespace millrace::io
