// Owning pointers to GStreamer's and GLib's objects.
#pragma once

#include <memory>

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

}  // namespace millrace::io
