// OpenCV's picture files and FFmpeg. They bring 200 libraries, so they lie in a module of their
// own, libmillrace_codecs.so, which the first use loads.
#pragma once

#include <dlfcn.h>

#include <stdexcept>

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

}  // namespace millrace::io
