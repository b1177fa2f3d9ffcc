#include "io/video/gstreamer.h"

#include <dlfcn.h>

#include "io/network/dial.h"
#include "io/source/source_kinds.h"

namespace millrace::io {
namespace {

using Loaded = std::pair<const GStreamer*, std::string>;

/// The module; or null, and why there is none.
const Loaded& loaded() {
  static const Loaded once = [] {
    // Found by the RUNPATH of the program or library that contains this code.
    if (void* const module = dlopen("libmillrace_gstreamer.so", RTLD_NOW))
      return Loaded(static_cast<const GStreamer*>(dlsym(module, "millrace_gstreamer")), "");
    return Loaded(nullptr, std::string("GStreamer is missing (") + dlerror() +
                               "); on Debian: apt install gstreamer1.0-plugins-good "
                               "gstreamer1.0-libav libgstrtspserver-1.0-0");
  }();
  return once;
}

}  // namespace

std::unique_ptr<Source> open_gstreamer(const SourceOptions& options, bool wait) {
  const auto& [gstreamer, why] = loaded();
  if (!gstreamer) throw source_error(options, why);
  return gstreamer->open(options, source_kind(options.uri)->live, wait);
}

std::string gstreamer_version() {
  const GStreamer* const gstreamer = loaded().first;
  return gstreamer ? gstreamer->version() : "";
}

std::string video_target_error(const std::string& to) {
  Uri uri = split_uri(to);
  if (uri.scheme != "rtsp") {
    const bool known = to.ends_with(".mp4") || to.ends_with(".mkv");
    return known ? "" : "a video is FILE.mp4, FILE.mkv or rtsp://ADDRESS:PORT/PATH";
  }
  const Authority at = authority(uri);
  if (at.host.empty()) uri.rest = "//localhost" + (at.port.empty() ? "" : ":" + at.port);
  const std::string wrong = authority_error(uri, 0);
  const bool safe =
      at.host.empty() || is_loopback(at.host) || (!at.user.empty() && !at.password.empty());
  if (!wrong.empty() || safe) return wrong;
  return "others can reach " + at.host + ": serving there needs rtsp://USER:PASSWORD@" + at.host;
}

std::unique_ptr<VideoWriter> open_video_writer(const VideoWriterOptions& options) {
  const std::string to = redacted(options.to);
  if (options.width <= 0 || options.height <= 0 || options.waiting <= 0 ||
      (options.channels != 1 && options.channels != 3))
    throw std::runtime_error(to + ": a video needs a size and 1 or 3 channels");
  const std::string wrong = video_target_error(options.to);
  const auto& [gstreamer, why] = loaded();
  if (!wrong.empty() || !gstreamer)
    throw std::runtime_error(to + ": " + (wrong.empty() ? why : wrong));
  return gstreamer->open_writer(options);
}

}  // namespace millrace::io
