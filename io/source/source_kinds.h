#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "io/source/source.h"
#include "io/source/uri.h"

namespace millrace::io {

inline double rate_or_default(double fps) {
  return fps > 0.0 ? fps : 25.0;
}

/// The longest frame time; a stream that claims a longer one has no known rate.
constexpr std::chrono::nanoseconds kLongestPeriod = std::chrono::hours(24);
/// Stamps beyond this are cut: times add up without overflow.
constexpr std::chrono::nanoseconds kLatest{std::int64_t(1) << 61};

/// A stream's own rate; 0 if impossible.
inline double plausible_rate(double fps) {
  return fps >= 1e9 / double(kLongestPeriod.count()) && fps <= 1e6 ? fps : 0.0;
}

inline std::chrono::nanoseconds frame_period(double fps) {
  return std::chrono::nanoseconds(plausible_rate(fps) > 0.0 ? std::int64_t(1e9 / fps) : 0);
}

/// A stamp in seconds; 0 for NaN.
inline std::chrono::nanoseconds stamp_of(double seconds) {
  const double most = double(kLatest.count());
  return std::chrono::nanoseconds(
      std::isnan(seconds) ? 0 : std::int64_t(std::clamp(seconds * 1e9, -most, most)));
}

/// "URI: cause", without the URI's credentials.
inline SourceError source_error(const SourceOptions& options, const std::string& cause) {
  std::string uri = redacted(options.uri);
  std::replace(uri.begin(), uri.end(), '\n', '?');  // errors are one line
  return SourceError(uri + ": " + cause);
}

inline std::string too_many_pixels(std::int64_t width, std::int64_t height, std::int64_t most) {
  return "a picture of " + size_text(width, height) +
         " has more pixels than source.max_pixels = " + std::to_string(most) + " allows";
}

/// Throws if a file, read up to `reached_s`, clearly ended before its duration, if that is known.
inline void require_whole(const SourceOptions& options, const SourceInfo& info, double reached_s) {
  const double end_s = reached_s + (info.fps > 0.0 ? 1.0 / info.fps : 0.0);
  if (end_s >= 0.95 * info.duration_s) return;  // containers are often slightly off
  char cause[80];
  std::snprintf(cause, sizeof cause, "ends at %.1f s of %.1f s (truncated?)", end_s,
                info.duration_s);
  throw source_error(options, cause);
}

/// Adds an entry, before other threads use the table. Throws std::invalid_argument if it exists.
void add_source_kind(const SourceKind& kind);

// open_* throw SourceError. Without GStreamer and OpenCV only open_synth() works.
std::unique_ptr<Source> open_file(const SourceOptions& options);
std::unique_ptr<Source> open_stream(const SourceOptions& options);
std::unique_ptr<Source> open_synth(const SourceOptions& options);
std::unique_ptr<Source> open_images(const SourceOptions& options);
void check_synth(const SourceOptions& options);
void check_images(const SourceOptions& options);
/// Without `wait`, read() returns the first picture, or throws; only then is info() valid.
std::unique_ptr<Source> open_gstreamer(const SourceOptions& options, bool wait = true);

}  // namespace millrace::io
