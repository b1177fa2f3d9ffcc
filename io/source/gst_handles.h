// Owning pointers for GStreamer and GLib, callbacks that own their data, and pixel copies between
// our unpadded rows and GStreamer's padded ones.
#pragma once

#include <gst/gst.h>
#include <gst/video/video.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "io/source/frame.h"

namespace millrace::io {

struct GstRelease {
  void operator()(gpointer object) const { g_object_unref(object); }  // any other class
  void operator()(GstSample* sample) const { gst_sample_unref(sample); }
  void operator()(GstBuffer* buffer) const { gst_buffer_unref(buffer); }
  void operator()(GstCaps* caps) const { gst_caps_unref(caps); }
  void operator()(GstMessage* message) const { gst_message_unref(message); }
  void operator()(GstQuery* query) const { gst_query_unref(query); }
  void operator()(GstEvent* event) const { gst_event_unref(event); }
  void operator()(GstIterator* iterator) const { gst_iterator_free(iterator); }
  void operator()(GList* objects) const { g_list_free_full(objects, g_object_unref); }
  void operator()(GMainContext* context) const { g_main_context_unref(context); }
  void operator()(GMainLoop* loop) const { g_main_loop_unref(loop); }
  void operator()(GSource* source) const {
    g_source_destroy(source);
    g_source_unref(source);
  }
  void operator()(GError* error) const { g_error_free(error); }
  void operator()(gchar* text) const { g_free(text); }
};

template <typename T>
using GstOwned = std::unique_ptr<T, GstRelease>;

struct GstStop {
  void operator()(GstElement* pipeline) const {
    gst_element_set_state(pipeline, GST_STATE_NULL);
    gst_object_unref(pipeline);
  }
};
/// A pipeline, stopped before it is released.
using GstRunning = std::unique_ptr<GstElement, GstStop>;

/// Null if there is none.
inline GstOwned<GstElement> child(GstElement* pipeline, const char* name) {
  return GstOwned<GstElement>(gst_bin_get_by_name(GST_BIN(pipeline), name));
}

/// Calls `use` for every element of `pipeline`, of nested bins too, until it returns true; whether
/// it did.
template <class Use>
bool any_element(GstElement* pipeline, const Use& use) {
  const GstOwned<GstIterator> elements(gst_bin_iterate_recurse(GST_BIN(pipeline)));
  GValue item = G_VALUE_INIT;
  bool found = false;
  while (!found && gst_iterator_next(elements.get(), &item) == GST_ITERATOR_OK) {
    found = use(GST_ELEMENT(g_value_get_object(&item)));
    g_value_reset(&item);
  }
  g_value_unset(&item);
  return found;
}

/// Whether the class of `element` has this word: "Demux" in "Codec/Demuxer".
inline bool is_of_class(GstElement* element, const char* word) {
  const gchar* const kind = gst_element_get_metadata(element, GST_ELEMENT_METADATA_KLASS);
  return kind && std::strstr(kind, word);
}

inline bool has_property(gpointer object, const char* name) {
  return g_object_class_find_property(G_OBJECT_GET_CLASS(object), name) != nullptr;
}

template <typename Work, typename Result, typename... Args>
void connect_as(gpointer object, const char* signal, Work work, Result (Work::*)(Args...) const) {
  const auto call = [](Args... args, gpointer kept) -> Result {
    return (*static_cast<Work*>(kept))(args...);
  };
  g_signal_connect_data(
      object, signal, G_CALLBACK(+call), new Work(std::move(work)),
      [](gpointer kept, GClosure*) { delete static_cast<Work*>(kept); }, GConnectFlags(0));
}
/// Calls `work`, a function object that lives as long as `object`, on `signal`, with its arguments.
template <typename Work>
void connect(gpointer object, const char* signal, Work work) {
  connect_as(object, signal, std::move(work), &Work::operator());
}

/// Calls work(pad, info) -> GstPadProbeReturn, which lives as long as the probe, for data of these
/// types that flows through `pad`.
template <typename Work>
void add_probe(GstPad* pad, int types, Work work) {
  gst_pad_add_probe(
      pad, GstPadProbeType(types),
      [](GstPad* at, GstPadProbeInfo* info, gpointer kept) {
        return (*static_cast<Work*>(kept))(at, info);
      },
      new Work(std::move(work)), [](gpointer kept) { delete static_cast<Work*>(kept); });
}

/// The caps of a caps event, which owns them; null for other events.
inline GstCaps* new_caps(GstEvent* event) {
  GstCaps* caps = nullptr;
  if (GST_EVENT_TYPE(event) == GST_EVENT_CAPS) gst_event_parse_caps(event, &caps);
  return caps;
}

/// Whether the elements behind the sink pad `pad` say that they are live.
inline bool is_fed_live(GstPad* pad) {
  const GstOwned<GstQuery> query(gst_query_new_latency());
  gboolean live = FALSE;
  if (gst_pad_peer_query(pad, query.get()))
    gst_query_parse_latency(query.get(), &live, nullptr, nullptr);
  return live;
}

/// Of our frames with 1 or 3 channels.
inline GstVideoFormat format_of(int channels) {
  return channels == 1 ? GST_VIDEO_FORMAT_GRAY8 : GST_VIDEO_FORMAT_RGB;
}
inline GstOwned<GstCaps> caps_of(int channels) {
  return GstOwned<GstCaps>(gst_caps_new_simple("video/x-raw", "format", G_TYPE_STRING,
                                               gst_video_format_to_string(format_of(channels)),
                                               nullptr));
}

/// Frames per second; 0: unknown.
inline double rate_of(const GstVideoInfo& info) {
  return double(GST_VIDEO_INFO_FPS_N(&info)) / std::max(1, GST_VIDEO_INFO_FPS_D(&info));
}

/// Running time of `stamp`; none in a segment that counts bytes, such as an unparsed file's.
inline GstClockTime running_time(const GstSegment& segment, GstClockTime stamp) {
  return segment.format == GST_FORMAT_TIME
             ? gst_segment_to_running_time(&segment, GST_FORMAT_TIME, stamp)
             : GST_CLOCK_TIME_NONE;
}

/// Copies size and pixels of an RGB or GRAY8 picture; storage is reused. False if it can't be read.
inline bool copy_pixels(GstBuffer* buffer, const GstVideoInfo& info, Frame& to) {
  GstVideoFrame from;
  if (!gst_video_frame_map(&from, &info, buffer, GST_MAP_READ)) return false;
  to.reshape(GST_VIDEO_FRAME_WIDTH(&from), GST_VIDEO_FRAME_HEIGHT(&from),
             GST_VIDEO_FRAME_N_COMPONENTS(&from));
  const std::size_t row = std::size_t(to.width) * to.channels;
  const auto* rows = static_cast<const std::uint8_t*>(GST_VIDEO_FRAME_PLANE_DATA(&from, 0));
  for (int y = 0; y < to.height; ++y)
    std::memcpy(&to.pixels[y * row], rows + y * GST_VIDEO_FRAME_PLANE_STRIDE(&from, 0), row);
  gst_video_frame_unmap(&from);
  return true;
}

/// Copies pixels into a buffer of format `info`, which has the frame's size.
inline void copy_pixels(const Frame& from, const GstVideoInfo& info, GstBuffer* to) {
  GstMapInfo map;
  gst_buffer_map(to, &map, GST_MAP_WRITE);
  const std::size_t row = std::size_t(from.width) * from.channels;
  for (int y = 0; y < from.height; ++y)
    std::memcpy(map.data + y * GST_VIDEO_INFO_PLANE_STRIDE(&info, 0), &from.pixels[y * row], row);
  gst_buffer_unmap(to, &map);
}

}  // namespace millrace::io
