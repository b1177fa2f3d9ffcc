#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "io/video/video_feed.h"

namespace millrace::io {
namespace {

// Encoders refuse smaller pictures or encode them badly.
constexpr int kLeastSide = 16;

struct Encoder {
  const char* element;
  const char* settings;  ///< $bits, $kbits and $frames per second
  const char* parser;
  const char* payloader;  ///< for RTSP
  bool in_mp4;
};

// The first installed one is used. (In GStreamer 1.22 libav's MPEG-4 loses the pictures' times, and
// VP9 in MP4 crashes the muxer.) Each uses one thread: the other cores are for training.
constexpr Encoder kEncoders[] = {
    {"x264enc",
     "tune=zerolatency speed-preset=veryfast threads=1 bitrate=$kbits key-int-max=$frames",
     "h264parse", "rtph264pay config-interval=-1", true},
    {"openh264enc", "complexity=low multi-thread=1 bitrate=$bits gop-size=$frames", "h264parse",
     "rtph264pay config-interval=-1", true},
    {"vp8enc", "deadline=1 cpu-used=8 threads=1 target-bitrate=$bits keyframe-max-dist=$frames",
     "identity", "rtpvp8pay", false},
    {"jpegenc", "quality=85", "jpegparse", "rtpjpegpay", false},
};

bool installed(const char* element) {
  return GstOwned<GstElementFactory>(gst_element_factory_find(element)) != nullptr;
}

const Encoder& best_encoder(const VideoWriterOptions& options, VideoUse use) {
  for (const Encoder& one : kEncoders) {
    if (use == VideoUse::mp4 && !one.in_mp4) continue;
    const std::string payloader = one.payloader;
    const bool served = installed(payloader.substr(0, payloader.find(' ')).c_str());
    if (installed(one.element) && installed(one.parser) && (use != VideoUse::rtsp || served)) {
      return one;
    }
  }
  throw std::runtime_error(options.to + ": GStreamer has no encoder for it here");
}

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
}

// The least integer factor that makes the sides even and large enough.
int zoom(int width, int height) {
  int factor = (kLeastSide + std::min(width, height) - 1) / std::min(width, height);
  if ((width * factor) % 2 || (height * factor) % 2) factor += factor % 2;
  return factor;
}

}  // namespace

std::string encoder_text(const VideoWriterOptions& options, VideoUse use) {
  const Encoder& encoder = best_encoder(options, use);
  const int factor = zoom(options.width, options.height);
  const long width = long(options.width) * factor, height = long(options.height) * factor;
  const double fps = rate_or_default(options.fps);
  const long bits = std::clamp(std::lround(double(width * height) * fps * 0.2), 300000l, 20000000l);

  std::string text = "videoconvert";
  if (factor > 1) {
    text = "videoscale method=nearest-neighbour ! video/x-raw,width=" + std::to_string(width) +
           ",height=" + std::to_string(height) + " ! " + text;
  }
  text += " ! video/x-raw,format=I420 ! " + std::string(encoder.element) + " name=encoder " +
          encoder.settings + " ! " + encoder.parser;
  if (use == VideoUse::rtsp) text += " ! " + std::string(encoder.payloader) + " name=pay0";
  replace_all(text, "$kbits", std::to_string(bits / 1000));
  replace_all(text, "$bits", std::to_string(bits));
  replace_all(text, "$frames", std::to_string(std::max(1l, std::lround(fps))));
  return text;
}

}  // namespace millrace::io
