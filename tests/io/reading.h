// Opening sources and reading them to their end.
#pragma once

#include <string>
#include <vector>

#include "io/source/source.h"

namespace millrace::io {

inline SourceOptions options_for(const std::string& uri, int channels = 3) {
  SourceOptions options;
  options.uri = uri;
  options.channels = channels;
  return options;
}

/// Why `options` can't be opened; "" if they can.
inline std::string open_error(const SourceOptions& options) {
  try {
    open_source(options);
  } catch (const SourceError& refused) {
    return refused.what();
  }
  return "";
}
inline std::string open_error(const std::string& uri) {
  return open_error(SourceOptions{.uri = uri});
}

struct Seen {
  std::vector<Frame> frames;
  std::string error;
};

/// Reads to the end, or to the error that ends it.
inline Seen read_all(Source& source, bool keep_pixels = true) {
  Seen seen;
  Frame frame;
  try {
    for (;;) {
      const ReadStatus status = source.read(frame, std::chrono::milliseconds(100));
      if (status == ReadStatus::end) return seen;
      if (status != ReadStatus::frame) continue;
      seen.frames.push_back(keep_pixels ? frame : Frame{});
      seen.frames.back().pts = frame.pts;
    }
  } catch (const SourceError& broken) {
    seen.error = broken.what();
  }
  return seen;
}
/// The same of a URI, which may fail to open, too.
inline Seen read_uri(const std::string& uri, int channels = 3) {
  try {
    return read_all(*open_source({.uri = uri, .channels = channels}));
  } catch (const SourceError& refused) {
    return {.error = refused.what()};
  }
}

}  // namespace millrace::io
