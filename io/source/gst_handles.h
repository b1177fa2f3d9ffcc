// Owning pointers to GStreamer's and GLib's objects, and callbacks that own what they are given.
#pragma once

#include <memory>
#include <utility>

#include <gst/gst.h>

namespace millrace::io {

struct GstRelease {
  void operator()(GstElement* element) const { gst_object_unref(element); }
  void operator()(GstBus* bus) const { gst_object_unref(bus); }
  void operator()(GstPad* pad) const { gst_object_unref(pad); }
  void operator()(GstSample* sample) const { gst_sample_unref(sample); }
  void operator()(GstCaps* caps) const { gst_caps_unref(caps); }
  void operator()(GstMessage* message) const { gst_message_unref(message); }
  void operator()(GstQuery* query) const { gst_query_unref(query); }
  void operator()(GstIterator* iterator) const { gst_iterator_free(iterator); }
  void operator()(GError* error) const { g_error_free(error); }
  void operator()(gchar* text) const { g_free(text); }
};

template <typename T>
using GstOwned = std::unique_ptr<T, GstRelease>;

/// Has `callback` called at `signal` with a pointer to `data`, which lives as long as `object`.
template <typename Data>
void connect(gpointer object, const char* signal, GCallback callback, Data data) {
  g_signal_connect_data(
      object, signal, callback, new Data(std::move(data)),
      [](gpointer kept, GClosure*) { delete static_cast<Data*>(kept); }, GConnectFlags(0));
}

/// The same for what flows through `pad`, of these types.
template <typename Data>
void add_probe(GstPad* pad, int types, GstPadProbeCallback callback, Data data) {
  gst_pad_add_probe(pad, GstPadProbeType(types), callback, new Data(std::move(data)),
                    [](gpointer kept) { delete static_cast<Data*>(kept); });
}

}  // namespace millrace::io
