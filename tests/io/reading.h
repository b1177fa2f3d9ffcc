// Opening sources and reading them to their end.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "io/source/source.h"
#include "tests/complaint.h"

namespace millrace::io {

/// Why `options` can't be opened; "" if they can.
inline std::string open_error(const SourceOptions& options) {
  return complaint<SourceError>([&] { open_source(options); });
}
inline std::string open_error(const std::string& uri) {
  return open_error(SourceOptions{.uri = uri});
}

/// Opening that URI fails, and says `part`.
inline void expect_refused(const std::string& uri, const std::string& part) {
  EXPECT_NE(open_error(uri).find(part), std::string::npos) << uri << ": " << open_error(uri);
}

struct Seen {
  std::vector<Frame> frames;
  std::string error;
};

/// Reads to the end, or to the error that ends it.
inline Seen read_all(Source& source) {
  Seen seen;
  Frame frame;
  try {
    for (;;) {
      const ReadStatus status = source.read(frame, std::chrono::milliseconds(100));
      if (status == ReadStatus::end) return seen;
      if (status == ReadStatus::frame) seen.frames.push_back(frame);
    }
  } catch (const SourceError& broken) {
    seen.error = broken.what();
  }
  return seen;
}
/// Reads until it is `enough`, at most for `limit`; whether it is. The time of frames must go on.
inline bool read_until(Source& source, const std::function<bool()>& enough,
                       std::chrono::seconds limit = std::chrono::seconds(30)) {
  Frame frame;
  std::chrono::nanoseconds last(-1);
  for (const Clock::time_point start = Clock::now(); !enough();) {
    if (Clock::now() > start + limit) return false;
    if (source.read(frame, std::chrono::milliseconds(20)) != ReadStatus::frame) continue;
    EXPECT_GT(frame.pts, std::exchange(last, frame.pts));
  }
  return true;
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
