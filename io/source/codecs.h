// OpenCV's picture files and FFmpeg. They bring 200 libraries, so they lie in a module of their
// own, libmillrace_codecs.so, which the first use loads.
#pragma once

#include <dlfcn.h>

#include <stdexcept>
#include <string_view>

#include <opencv2/core.hpp>

#include "io/source/source.h"

namespace millrace::io {

/// imread is OpenCV's. open_ffmpeg() throws SourceError.
struct Codecs {
  cv::Mat (*imread)(const std::string& path, int flags);
  /// A JPEG file of this quality, in percent; 0: a PNG file.
  std::string (*encode)(const cv::Mat& picture, int quality);
  /// Decodes no picture before its size is known; the file may also be one picture.
  std::unique_ptr<Source> (*open_ffmpeg)(const SourceOptions& options, const std::string& path);
  /// Whether a video must be turned, in one of the eight orientations that GStreamer ignores.
  bool (*ffmpeg_alone_turns)(const std::string& path);
};
extern "C" const Codecs millrace_codecs;  ///< in the module

/// Thread-safe. Throws std::runtime_error if the module can't be loaded.
inline const Codecs& codecs() {
  static const Codecs* const found = [] {
    // Found by the RUNPATH of the program or library that contains this code.
    void* const module = dlopen("libmillrace_codecs.so", RTLD_NOW);
    if (!module) throw std::runtime_error(dlerror());
    return static_cast<const Codecs*>(dlsym(module, "millrace_codecs"));
  }();
  return *found;
}

/// Whether `orientation`, as in EXIF, 1 (upright) to 8, swaps width and height.
inline bool lies_aside(int orientation) {
  return orientation > 4;
}

/// Sets `from` upright; `to` may be the same picture, or one of the right size and type. Reentrant.
inline void turn(const cv::Mat& from, int orientation, cv::Mat& to) {
  constexpr std::string_view across = "2367", down = "3478";
  const char as = char('0' + orientation);
  if (lies_aside(orientation))
    cv::transpose(from, to);
  else if (from.data != to.data)
    from.copyTo(to);
  if (across.find(as) != across.npos) cv::flip(to, to, 1);
  if (down.find(as) != down.npos) cv::flip(to, to, 0);
}

}  // namespace millrace::io
