#include "io/source/gst_pipeline.h"
#include "io/source/picture_headers.h"
#include "io/source/source_kinds.h"

namespace millrace::io {
namespace {

constexpr GstElementFactoryListType kPictureDecoder = GST_ELEMENT_FACTORY_TYPE_DECODER |
                                                      GST_ELEMENT_FACTORY_TYPE_MEDIA_VIDEO |
                                                      GST_ELEMENT_FACTORY_TYPE_MEDIA_IMAGE;

// A coded picture is smaller than the raw one, headers aside.
std::uint64_t most_bytes(std::int64_t pixels) {
  return std::uint64_t(pixels) * 3 + (1 << 20);
}

/// Watches the data flowing into an element of `pipeline`; its pad owns this.
struct Watch {
  Watch(GstElement* in, std::int64_t most_pixels) : pipeline(in), most(most_pixels) {}

  GstElement* const pipeline;
  const std::int64_t most;  ///< pixels
  JpegHeaders jpeg;
  std::atomic<std::uint64_t> bytes{0};  ///< of the current picture
  bool sized = false, begun = false, refused = false;

  /// Posts the reason once and drops everything from here on. Posts on the pipeline, since
  /// decodebin swallows errors of elements that it tries.
  void refuse(const std::string& why) {
    if (!std::exchange(refused, true))
      GST_ELEMENT_ERROR(pipeline, STREAM, DECODE, ("%s", why.c_str()), (nullptr));
  }
  void check(const std::optional<PictureSize>& size) {
    if (!size) return;
    sized = true;
    if (size->exceeds(most)) refuse(too_many_pixels(size->width, size->height, most));
  }
  void count(std::uint64_t more) {
    if ((bytes += more) > most_bytes(most))
      refuse("a picture has more bytes than source.max_pixels = " + std::to_string(most) +
             " allows");
  }
  GstPadProbeReturn verdict() const { return refused ? GST_PAD_PROBE_DROP : GST_PAD_PROBE_OK; }
};

std::string kind_of(GstPad* pad) {
  const GstOwned<GstCaps> caps(gst_pad_get_current_caps(pad));
  return caps ? gst_structure_get_name(gst_caps_get_structure(caps.get(), 0)) : "";
}

void check_buffer(GstPad* pad, GstBuffer* buffer, Watch& watch) {
  const std::string format = kind_of(pad);
  GstMapInfo map;
  if (!gst_buffer_map(buffer, &map, GST_MAP_READ)) return;
  const std::string_view bytes(reinterpret_cast<const char*>(map.data), map.size);
  if (format == "image/jpeg") {
    const std::optional<PictureSize> size = watch.jpeg.read(bytes);
    if (size) watch.bytes = 0;
    watch.check(size);
    watch.count(map.size);
    // FFmpeg marks pictures of reduced range in a comment.
    if (watch.jpeg.oddly_sampled() || bytes.substr(0, 1024).find("CS=ITU601") != bytes.npos)
      watch.refuse("GStreamer mistakes the colours of such JPEG pictures");
  } else if (!watch.begun || !format.starts_with("image/") || format == "image/png") {
    watch.check(coded_size(format, bytes));  // of other pictures only the first bytes are known
    if (format == "image/png" && bytes.substr(0, 26).ends_with("\x10\2"))
      watch.refuse("GStreamer mistakes the colours of a PNG with 48 bits a pixel");
    if (format == "image/png" && is_animated(bytes))
      watch.refuse("GStreamer reads only the first picture of an animated PNG");
    if (format == "image/webp" && is_animated(bytes))
      watch.refuse(
          "no decoder here reads an animated WebP; a GIF, an animated PNG or a video is read");
    if (!watch.sized)
      watch.refuse("a picture of " + format + " does not tell its size before it is decoded");
  }
  watch.begun = true;
  gst_buffer_unmap(buffer, &map);
}

std::optional<PictureSize> announced_size(const GstCaps* caps) {
  const GstStructure* const fields = gst_caps_get_structure(caps, 0);
  int width = 0, height = 0;
  if (!gst_structure_get_int(fields, "width", &width) ||
      !gst_structure_get_int(fields, "height", &height) || width <= 0 || height <= 0)
    return std::nullopt;
  return PictureSize{width, height};
}

void watch(GstElement* pipeline, GstElement* element, std::int64_t most) {
  GstElementFactory* const factory = gst_element_get_factory(element);
  const GstOwned<GstPad> sink(gst_element_get_static_pad(element, "sink"));
  if (!factory || !sink) return;
  const auto watch = std::make_shared<Watch>(pipeline, most);
  if (gst_element_factory_list_is_type(factory, kPictureDecoder)) {
    // Into its own memory libav decodes formats that GStreamer cannot name, instead of crashing.
    if (has_property(element, "direct-rendering"))
      g_object_set(element, "direct-rendering", FALSE, nullptr);
    add_probe(sink.get(), GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM,
              [watch](GstPad* pad, GstPadProbeInfo* info) {
                if (info->type & GST_PAD_PROBE_TYPE_BUFFER) {
                  if (!watch->refused)
                    check_buffer(pad, gst_pad_probe_info_get_buffer(info), *watch);
                  return watch->verdict();
                }
                if (GstCaps* const caps = new_caps(gst_pad_probe_info_get_event(info)))
                  watch->check(announced_size(caps));
                return GST_PAD_PROBE_OK;
              });
  } else if (std::string_view(GST_OBJECT_NAME(factory)) == "multipartdemux") {
    // The demuxer holds a part until it has all bytes that the server promised.
    add_probe(sink.get(), GST_PAD_PROBE_TYPE_BUFFER, [watch](GstPad*, GstPadProbeInfo* info) {
      watch->count(gst_buffer_get_size(gst_pad_probe_info_get_buffer(info)));
      return watch->verdict();
    });
    connect(element, "pad-added", [watch](GstElement*, GstPad* part) {
      add_probe(part, GST_PAD_PROBE_TYPE_BUFFER, [watch](GstPad*, GstPadProbeInfo*) {
        watch->bytes = 0;
        return GST_PAD_PROBE_OK;
      });
    });
  }
}

void note(std::atomic<GstClockTime>& reached, GstBuffer* buffer) {
  const GstClockTime start = GST_BUFFER_DTS_OR_PTS(buffer);
  if (!GST_CLOCK_TIME_IS_VALID(start)) return;
  const GstClockTime length =
      GST_BUFFER_DURATION_IS_VALID(buffer) ? GST_BUFFER_DURATION(buffer) : 0;
  GstClockTime before = reached.load();
  while (before < start + length && !reached.compare_exchange_weak(before, start + length)) {
  }
}

void note_all(const SharedTime& reached, GstPad* pad) {
  constexpr int data = GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_BUFFER_LIST;
  add_probe(pad, data, [reached](GstPad*, GstPadProbeInfo* info) {
    if (GstBuffer* const buffer = gst_pad_probe_info_get_buffer(info)) {
      note(*reached, buffer);
    } else if (GstBufferList* const list = gst_pad_probe_info_get_buffer_list(info)) {
      const guint length = gst_buffer_list_length(list);
      if (length > 0) note(*reached, gst_buffer_list_get(list, length - 1));
    }
    return GST_PAD_PROBE_OK;
  });
}

GstPadProbeReturn to_converter(GstPad*, GstPadProbeInfo* info) {
  GstEvent* const event = gst_pad_probe_info_get_event(info);
  GstCaps* const caps = new_caps(event);
  GstVideoInfo video;
  if (!caps || !gst_video_info_from_caps(&video, caps)) return GST_PAD_PROBE_OK;
  const bool grey = GST_VIDEO_INFO_IS_GRAY(&video);
  if (!grey && !GST_VIDEO_INFO_IS_YUV(&video)) return GST_PAD_PROBE_OK;
  // `video` has guesses for fields missing in the caps.
  const gchar* const named =
      gst_structure_get_string(gst_caps_get_structure(caps, 0), "colorimetry");
  GstVideoColorimetry told{}, &colours = video.colorimetry;
  if (named && gst_video_colorimetry_from_string(&told, named) && !grey &&
      told.matrix != GST_VIDEO_COLOR_MATRIX_UNKNOWN)
    return GST_PAD_PROBE_OK;
  if (told.range != GST_VIDEO_COLOR_RANGE_UNKNOWN) colours.range = told.range;
  colours.matrix = GST_VIDEO_COLOR_MATRIX_BT601;
  if (grey) colours.range = GST_VIDEO_COLOR_RANGE_0_255;
  const GstOwned<gchar> text(gst_video_colorimetry_to_string(&colours));
  const GstOwned<GstCaps> settled(gst_caps_copy(caps));
  gst_caps_set_simple(settled.get(), "colorimetry", G_TYPE_STRING, text.get(), nullptr);
  GstEvent* const other = gst_event_new_caps(settled.get());
  gst_event_set_seqnum(other, gst_event_get_seqnum(event));
  gst_event_replace(reinterpret_cast<GstEvent**>(&info->data), other);
  gst_event_unref(other);
  return GST_PAD_PROBE_OK;
}

/// Why GStreamer would misread the stream; null: it reads it right.
const char* mistaken(const std::string& kind, const GstStructure& stream) {
  const auto text = [&](const char* field) {
    const gchar* const value = gst_structure_get_string(&stream, field);
    return std::string(value ? value : "");
  };
  if (kind == "application/x-gst-av-nut") return "GStreamer finds no end of a NUT file";
  if (kind == "image/gif") return "GStreamer finds no end of a GIF";
  const std::string raw = kind == "video/x-raw" ? text("format") : "";
  if (raw == "RGB8P" || raw == "r210") return "GStreamer mistakes the colours of such raw pictures";
  GstVideoColorimetry colours{};
  if (kind == "video/x-av1" &&
      gst_video_colorimetry_from_string(&colours, text("colorimetry").c_str()) &&
      colours.matrix == GST_VIDEO_COLOR_MATRIX_RGB)
    return "GStreamer mistakes RGB in AV1 for YUV";
  return nullptr;
}

bool means_no_decoder(const GError& error) {
  if (error.domain == GST_CORE_ERROR) return error.code == GST_CORE_ERROR_MISSING_PLUGIN;
  return error.domain == GST_STREAM_ERROR && (error.code == GST_STREAM_ERROR_CODEC_NOT_FOUND ||
                                              error.code == GST_STREAM_ERROR_TYPE_NOT_FOUND);
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \n.") + 1);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// The first line of a debug text is a GStreamer source location; the rest may be useful.
std::string detail_of(const gchar* debug) {
  const std::string text = debug ? debug : "";
  const std::size_t line = text.find('\n');
  return line == std::string::npos ? "" : trimmed(text.substr(line + 1));
}

/// Where the request of the element that posted `message` was redirected to; "": nowhere.
std::string redirect_of(GstMessage* message) {
  const GstOwned<GstQuery> query(gst_query_new_uri());
  gchar* to = nullptr;
  GstObject* const from = GST_MESSAGE_SRC(message);
  if (GST_IS_URI_HANDLER(from) && gst_element_query(GST_ELEMENT(from), query.get()))
    gst_query_parse_uri_redirection(query.get(), &to);
  const GstOwned<gchar> owned(to);
  return to ? to : "";
}

/// Without what follows the reason: the URL, which the line names anyway, and places in GStreamer.
std::string reason_of(std::string text) {
  for (const char* const rest : {", URL: ", ": ../"})
    text.resize(std::min(text.size(), text.find(rest)));
  return text;
}

}  // namespace

void bound_pictures(GstElement* pipeline, std::int64_t most) {
  connect(pipeline, "deep-element-added", [most](GstBin* top, GstBin*, GstElement* element) {
    watch(GST_ELEMENT(top), element, most);
  });
  any_element(pipeline, [&](GstElement* element) {
    watch(pipeline, element, most);
    return false;
  });
}

bool reads_playlist(GstElement* pipeline) {
  return any_element(pipeline, [](GstElement* one) { return is_of_class(one, "Adaptive"); });
}

void settle_colours(GstElement* converter) {
  const GstOwned<GstPad> pad(gst_element_get_static_pad(converter, "sink"));
  add_probe(pad.get(), GST_PAD_PROBE_TYPE_EVENT_DOWNSTREAM, to_converter);
}

gboolean wants_decoding(GstElement* decodebin, GstPad* pad, GstCaps* format, gpointer) {
  const GstStructure* const stream = gst_caps_get_structure(format, 0);
  const gchar* const media = gst_structure_get_string(stream, "media");  // RTP's field
  const std::string kind = media ? media : gst_structure_get_name(stream);
  for (const char* const other : {"audio", "text", "subpicture", "subtitle"}) {
    if (kind.starts_with(other)) return FALSE;
  }
  const GstOwned<GstObject> pipeline(gst_object_get_parent(GST_OBJECT(decodebin)));
  const char* const why = mistaken(kind, *stream);
  if (why) {
    GST_ELEMENT_ERROR(pipeline.get(), STREAM, DECODE, ("%s", why), (nullptr));
    add_probe(pad, GST_PAD_PROBE_TYPE_BUFFER, [](auto...) { return GST_PAD_PROBE_DROP; });
  }
  return !why;
}

SharedTime watch_extent(GstElement* pipeline) {
  const auto reached = std::make_shared<std::atomic<GstClockTime>>(0);
  connect(pipeline, "deep-element-added", [reached](GstBin*, GstBin*, GstElement* element) {
    if (!is_of_class(element, "Demux")) return;
    connect(element, "pad-added", [reached](GstElement*, GstPad* pad) {
      if (GST_PAD_IS_SRC(pad)) note_all(reached, pad);
    });
  });
  return reached;
}

bool GstTrouble::look() {
  while (const GstOwned<GstMessage> message{gst_bus_pop(bus_.get())}) {
    const GstStructure* const fields = gst_message_get_structure(message.get());
    if (GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_ERROR && cause_.empty()) {
      note_error(message.get());
    } else if (fields && gst_structure_has_name(fields, "missing-plugin")) {
      const gchar* const name = gst_structure_get_string(fields, "name");
      if (name) missing_ = name;
    }
  }
  return !cause_.empty();
}

void GstTrouble::note_error(GstMessage* message) {
  GError* raw_error = nullptr;
  gchar* raw_debug = nullptr;
  gst_message_parse_error(message, &raw_error, &raw_debug);
  const GstOwned<GError> error(raw_error);
  const GstOwned<gchar> debug(raw_debug);
  const std::string all = trimmed(error->message) + detail_of(debug.get()),
                    detail = reason_of(detail_of(debug.get()));
  cause_ = reason_of(trimmed(error->message));
  if (detail.find("reason not-linked") != std::string::npos) {
    cause_ = "there is no video in it";
  } else if (detail.find("reason not-negotiated") != std::string::npos) {
    cause_ = "GStreamer has no name for its pixel format";
  } else if (detail.find("reason error (-5)") != std::string::npos) {  // GST_FLOW_ERROR
    const std::string to = redirect_of(message);
    cause_ = to.empty() ? "it cannot be read" : "its redirect to " + to + " cannot be read";
  } else if (all.find("Redirect to:") != std::string::npos &&  // written for any status
             all.find(" (30") != std::string::npos) {
    const std::string to = redirect_of(message);
    cause_ = to.empty() ? "a part of it is redirected, which is not followed"
                        : "it is redirected too often, at last to " + to;
  } else if (!detail.empty() && detail != cause_) {
    cause_ = detail.starts_with(cause_) ? detail : cause_ + " (" + detail + ")";
  }
  if (means_no_decoder(*error) && !missing_.empty()) cause_ = "GStreamer has no " + missing_;
}

void GstTrouble::raise(const SourceOptions& options) const {
  throw source_error(options, redacted(cause_));
}

}  // namespace millrace::io
