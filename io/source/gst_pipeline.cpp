#include "io/source/gst_pipeline.h"

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string_view>

#include <fcntl.h>

#include "io/files/descriptor.h"
#include "io/source/source_kinds.h"

namespace millrace::io {
namespace {

// The appsink never drops, because it wouldn't count drops; the frame queue does.
constexpr unsigned kBuffers = 2;
// Milliseconds to wait for reordered packets of an RTSP stream (default: 2000).
constexpr unsigned kRtspLatency = 50;
// Microseconds without a packet before RTSP switches to TCP. The default, 5 s, would delay each
// reconnect on a network without UDP.
constexpr guint64 kUdpPatience = 1000000;

constexpr char kConvert[] = " ! videoconvert name=millrace_convert";
// Turns pictures as their stream's orientation says: phones store what their sensor sees. A user's
// own pipeline may turn them itself, and count bytes instead of time, which this element refuses.
constexpr char kTurn[] = " ! videoflip video-direction=auto";
constexpr char kSink[] = " ! appsink name=millrace_sink";

GstRunning parse(const SourceOptions& options, const std::string& text) {
  GError* raw_error = nullptr;
  GstRunning made(
      gst_parse_launch_full(text.c_str(), nullptr, GST_PARSE_FLAG_FATAL_ERRORS, &raw_error));
  // New elements have a floating reference.
  if (made) gst_object_ref_sink(made.get());
  const GstOwned<GError> error(raw_error);
  if (error) throw source_error(options, redacted(error->message));
  if (!made || !GST_IS_PIPELINE(made.get())) throw source_error(options, "is not a pipeline");
  return made;
}

GstParts decode_uri(const SourceOptions& options, const std::string& uri) {
  GstParts parts{
      parse(options, std::string("uridecodebin name=") + kFrom + kConvert + kTurn + kSink)};
  const GstOwned<GstElement> from = child(parts.pipeline.get(), kFrom);
  g_object_set(from.get(), "uri", uri.c_str(), nullptr);
  if (!split_uri(uri).is_rtsp()) keep_to_origin(parts.pipeline.get(), uri);  // RTSP uses many ports
  connect(from.get(), "source-setup", [](GstElement*, GstElement* source) {
    // The default of "protocols" is right: UDP, then TCP if no packet arrives.
    if (has_property(source, "latency") && has_property(source, "protocols"))
      g_object_set(source, "latency", kRtspLatency, "timeout", kUdpPatience, nullptr);
  });
  connect(from.get(), "deep-element-added", [](GstBin*, GstBin*, GstElement* element) {
    // A web camera sends a single stream: the demuxer then outputs the first picture at once
    // instead of waiting for other streams.
    if (has_property(element, "single-stream"))
      g_object_set(element, "single-stream", TRUE, nullptr);
  });
  g_signal_connect(from.get(), "autoplug-continue", G_CALLBACK(wants_decoding), nullptr);
  return parts;
}

// Opens a pipe without blocking on a missing writer: through a non-blocking descriptor.
GstParts decode_pipe(const SourceOptions& options, const std::string& path) {
  Descriptor pipe(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!pipe) throw source_error(options, std::strerror(errno));
  GstParts parts = decode_uri(options, "fd://" + std::to_string(pipe.get()));
  g_object_set_data_full(G_OBJECT(parts.pipeline.get()), "millrace_pipe",
                         new Descriptor(std::move(pipe)),
                         [](gpointer kept) { delete static_cast<Descriptor*>(kept); });
  return parts;
}

GstParts decode_file(const SourceOptions& options, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_fifo(path, ignored)) return decode_pipe(options, path);
  const GstOwned<gchar> uri(gst_filename_to_uri(std::filesystem::absolute(path).c_str(), nullptr));
  if (!uri) throw source_error(options, "is not a usable path");
  return decode_uri(options, uri.get());
}

GstParts read_camera(const SourceOptions& options, const Uri& uri) {
  const std::string device = file_path(uri);
  std::error_code ignored;
  if (!std::filesystem::exists(device, ignored)) throw source_error(options, "no such device");
  GstParts parts{parse(
      options, std::string("v4l2src name=") + kFrom + " ! decodebin" + kConvert + kTurn + kSink)};
  g_object_set(child(parts.pipeline.get(), kFrom).get(), "device", device.c_str(), nullptr);
  return parts;
}

GstParts run_text(const SourceOptions& options, std::string text) {
  text.erase(text.find_last_not_of(" \t\n!") + 1);
  if (text.empty()) throw source_error(options, "contains no element");
  // "appsink" may also be part of a name or path.
  if (text.find("appsink") != std::string::npos) {
    GstParts parts{parse(options, text)};
    const auto take_sink = [&](GstElement* element) {
      parts.sink = GST_IS_APP_SINK(element) ? GST_APP_SINK(element) : nullptr;
      return parts.sink != nullptr;
    };
    if (any_element(parts.pipeline.get(), take_sink)) return parts;
  }
  return {parse(options, text + kConvert + kSink)};
}

void set_up_sink(const SourceOptions& options, const GstParts& parts, bool own) {
  const GstOwned<GstCaps> theirs(gst_app_sink_get_caps(parts.sink));
  if (!theirs || gst_caps_is_any(theirs.get())) {
    gst_app_sink_set_caps(parts.sink, caps_of(options.channels).get());
  }
  if (own) g_object_set(parts.sink, "sync", FALSE, "drop", FALSE, nullptr);
  // 0: unbounded.
  if (own || gst_app_sink_get_max_buffers(parts.sink) == 0) {
    gst_app_sink_set_max_buffers(parts.sink, kBuffers);
  }
}

constexpr guint kLeastHead = 2 << 10,
                kMostHead = 64 << 10;      // bytes; a viewer may join during a picture
constexpr std::size_t kPartHeaders = 512;  // bytes before a picture

bool ends_in_headers(std::string_view before) {
  if (!before.ends_with("\n\r\n") && !before.ends_with("\n\n")) return false;
  std::string text(before.substr(before.size() - std::min(before.size(), kPartHeaders)));
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text.find("content-") != text.npos || text.find("--") != text.npos;
}

/// Finds JPEG pictures among the headers of a web camera's parts by their bytes, since GStreamer's
/// demuxer believes each part's type and needs a boundary before the first.
void find_pictures(GstTypeFind* head, gpointer) {
  for (guint size = kLeastHead; size <= kMostHead; size *= 2) {
    const guint8* const bytes = gst_type_find_peek(head, 0, size);
    if (!bytes) return;
    const std::string_view text(reinterpret_cast<const char*>(bytes), size);
    for (std::size_t at = 0; (at = text.find("\xff\xd8\xff", at)) != text.npos; ++at) {
      if (!ends_in_headers(text.substr(0, at))) continue;
      gst_type_find_suggest_simple(head, GST_TYPE_FIND_MAXIMUM, "image/jpeg", nullptr, nullptr);
      return;
    }
  }
}

GstParts build(const SourceOptions& options, const Uri& uri) {
  if (uri.is_file()) return decode_file(options, file_path(uri));
  if (uri.scheme == "v4l2") return read_camera(options, uri);
  if (uri.scheme == "gst") return run_text(options, uri.rest);
  return decode_uri(options, options.uri);
}

}  // namespace

void start_gstreamer() {
  static std::once_flag once;
  std::call_once(once, [] {
    GError* raw_error = nullptr;
    const bool started = gst_init_check(nullptr, nullptr, &raw_error);
    const GstOwned<GError> error(raw_error);
    if (!started) {
      throw SourceError(std::string("GStreamer: ") + (error ? error->message : "did not start"));
    }
    watch_sources();
    gst_type_find_register(nullptr, "millrace_parts", GST_RANK_PRIMARY + 1, find_pictures, nullptr,
                           nullptr, nullptr, nullptr);
  });
}

GstParts build_pipeline(const SourceOptions& options) {
  start_gstreamer();
  GstParts parts = build(options, split_uri(options.uri));
  const bool own = parts.sink == nullptr;
  if (own) {
    // The pipeline keeps sink and converter alive.
    parts.sink = GST_APP_SINK_CAST(child(parts.pipeline.get(), "millrace_sink").get());
    parts.converter = child(parts.pipeline.get(), "millrace_convert").get();
    settle_colours(parts.converter);
    if (const GstOwned<GstElement> from = child(parts.pipeline.get(), kFrom))
      connect(from.get(), "pad-added", [converter = parts.converter](GstElement*, GstPad* pad) {
        // A recording's codec may change midway: the new decoder replaces the first.
        const GstOwned<GstPad> to(gst_element_get_static_pad(converter, "sink"));
        if (!gst_pad_is_linked(to.get())) gst_pad_link(pad, to.get());
      });
  }
  set_up_sink(options, parts, own);
  bound_pictures(parts.pipeline.get(), options.max_pixels);
  return parts;
}

}  // namespace millrace::io
