#include "io/source/gst_extent.h"

#include <string_view>

namespace millrace::io {
namespace {

using SharedTime = std::shared_ptr<std::atomic<GstClockTime>>;

void forget_time(gpointer shared) {
  delete static_cast<SharedTime*>(shared);
}
void forget_time_closure(gpointer shared, GClosure*) {
  forget_time(shared);
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

GstPadProbeReturn on_data(GstPad*, GstPadProbeInfo* info, gpointer shared) {
  std::atomic<GstClockTime>& reached = **static_cast<SharedTime*>(shared);
  if (GstBuffer* const buffer = gst_pad_probe_info_get_buffer(info)) {
    note(reached, buffer);
  } else if (GstBufferList* const list = gst_pad_probe_info_get_buffer_list(info)) {
    const guint length = gst_buffer_list_length(list);
    if (length > 0) note(reached, gst_buffer_list_get(list, length - 1));
  }
  return GST_PAD_PROBE_OK;
}

void on_pad(GstElement*, GstPad* pad, gpointer shared) {
  if (!GST_PAD_IS_SRC(pad)) return;
  const auto data = GstPadProbeType(GST_PAD_PROBE_TYPE_BUFFER | GST_PAD_PROBE_TYPE_BUFFER_LIST);
  gst_pad_add_probe(pad, data, on_data, new SharedTime(*static_cast<SharedTime*>(shared)), forget_time);
}

void watch_element(GstBin*, GstBin*, GstElement* element, gpointer shared) {
  const gchar* const kind = gst_element_get_metadata(element, GST_ELEMENT_METADATA_KLASS);
  if (!kind || std::string_view(kind).find("Demux") == std::string_view::npos) return;
  g_signal_connect_data(element, "pad-added", G_CALLBACK(on_pad),
                        new SharedTime(*static_cast<SharedTime*>(shared)), forget_time_closure,
                        GConnectFlags(0));
}

}  // namespace

GstExtent::GstExtent(GstElement* pipeline)
    : reached_(std::make_shared<std::atomic<GstClockTime>>(0)) {
  g_signal_connect_data(pipeline, "deep-element-added", G_CALLBACK(watch_element),
                        new SharedTime(reached_), forget_time_closure, GConnectFlags(0));
}

}  // namespace millrace::io
