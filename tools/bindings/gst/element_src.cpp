// The source pad: pushes pictures, handles events and queries from downstream.
#include <algorithm>
#include <cmath>
#include <utility>

#include "io/source/gst_handles.h"
#include "tools/bindings/gst/element.h"

namespace millrace::gst {

gboolean Element::activate_src(gboolean active) {
  if (!active) {
    outlet_.flush(true, position_);
    return gst_pad_stop_task(src_);
  }
  outlet_.flush(false, position_);
  return gst_pad_start_task(
      src_, [](gpointer self) { static_cast<Element*>(self)->push_next(); }, this, nullptr);
}

void Element::push_next() {
  GstEvent* event = nullptr;
  switch (outlet_.next(shown_, event)) {
    case Outlet::Next::flushing:
      gst_pad_pause_task(src_);
      return;
    case Outlet::Next::event:
      push_event(event);
      return;
    case Outlet::Next::end:
      event = gst_event_new_eos();
      if (eos_seqnum_ != 0) gst_event_set_seqnum(event, eos_seqnum_);
      gst_pad_push_event(src_, event);
      gst_pad_pause_task(src_);
      return;
    case Outlet::Next::picture:
      const GstFlowReturn flow = push_picture();
      if (flow != GST_FLOW_OK) give_up(flow);
  }
}

/// Replaces caps by those of the network's pictures, which are known once a picture follows.
void Element::push_event(GstEvent* event) {
  if (GST_EVENT_TYPE(event) == GST_EVENT_SEGMENT) gst_event_copy_segment(event, &segment_);
  if (GST_EVENT_TYPE(event) == GST_EVENT_CAPS) {
    GstCaps* caps = nullptr;
    gst_event_parse_caps(event, &caps);
    GstVideoInfo in;
    gst_video_info_from_caps(&in, caps);
    gst_event_unref(event);
    std::optional<std::array<int, 3>> shape;
    with_learner([&](Learner& learner) { shape = learner.shape(); });
    if (!shape) return;  // the run ended before the first picture
    picture_ = std::make_unique<Picture>(*shape, copy_of_settings().output);
    const bool stretched = config_.source.fit == "stretch" && config_.source.roi.empty();
    caps = picture_->caps(in, stretched);
    event = gst_event_new_caps(caps);
    gst_caps_unref(caps);
  }
  gst_pad_push_event(src_, event);
}

GstFlowReturn Element::push_picture() {
  const GstClockTime running_time = io::running_time(segment_, shown_.stamp.pts);
  tell_latency();
  tell_prediction(running_time);
  if (is_late(running_time)) {
    ++late_;
    tell_late(running_time);
    return GST_FLOW_OK;
  }
  GstBuffer* const buffer = picture_->draw(shown_);
  if (std::exchange(discont_, false)) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_DISCONT);
  const GstFlowReturn flow = gst_pad_push(src_, buffer);
  if (flow == GST_FLOW_OK) ++pushed_;
  return flow;
}

/// Refuses further frames and discards pictures in transit: nothing more can be pushed.
void Element::give_up(GstFlowReturn flow) {
  downstream_ = flow;
  outlet_.flush(true, position_);
  gst_pad_pause_task(src_);
  if (flow == GST_FLOW_NOT_LINKED || flow < GST_FLOW_EOS) GST_ELEMENT_FLOW_ERROR(element_, flow);
  if (flow != GST_FLOW_FLUSHING) gst_pad_push_event(src_, gst_event_new_eos());
}

bool Element::is_late(GstClockTime running_time) const {
  const GstClockTime earliest = earliest_;
  if (!GST_CLOCK_TIME_IS_VALID(earliest) || !GST_CLOCK_TIME_IS_VALID(running_time)) return false;
  return running_time <= earliest && copy_of_settings().qos;
}

void Element::tell_late(GstClockTime running_time) {
  const Stamp& stamp = shown_.stamp;
  GstMessage* const message = gst_message_new_qos(
      GST_OBJECT(element_), FALSE, running_time,
      gst_segment_to_stream_time(&segment_, GST_FORMAT_TIME, stamp.pts), stamp.pts, stamp.duration);
  gst_message_set_qos_stats(message, GST_FORMAT_BUFFERS, guint64(pushed_.load()),
                            guint64(late_.load()));
  gst_element_post_message(element_, message);
}

/// Posts {frame, loss, timestamp, running-time}, and the class if the network predicts one.
void Element::tell_prediction(GstClockTime running_time) {
  if (!copy_of_settings().post_messages) return;
  GstStructure* const told =
      gst_structure_new("millrace", "frame", G_TYPE_INT64, shown_.frame, "timestamp", G_TYPE_UINT64,
                        shown_.stamp.pts, "running-time", G_TYPE_UINT64, running_time, nullptr);
  if (!std::isnan(shown_.loss))
    gst_structure_set(told, "loss", G_TYPE_DOUBLE, double(shown_.loss), nullptr);
  const std::vector<float>& numbers = shown_.prediction;
  if (config_.task.kind == "label") {
    const auto best = std::max_element(numbers.begin(), numbers.end());
    gst_structure_set(told, "class", G_TYPE_INT, int(best - numbers.begin()), nullptr);
  }
  gst_element_post_message(element_, gst_message_new_element(GST_OBJECT(element_), told));
}

/// Makes the pipeline query the latency again if a prediction took longer than reported. Only for
/// live streams: otherwise predictions wait for downstream.
void Element::tell_latency() {
  if (!live_) return;
  double ms = 0;
  with_learner([&](Learner& learner) { ms = learner.latency_ms(); });
  const GstClockTime seen = GstClockTime(ms * GST_MSECOND), told = latency_;
  if (told == 0 || seen <= told) return;
  const GstClockTime frame = frame_time();
  latency_ = (seen / frame + 1) * frame;
  gst_element_post_message(element_, gst_message_new_latency(GST_OBJECT(element_)));
}

gboolean Element::src_event(GstEvent* event) {
  if (GST_EVENT_TYPE(event) != GST_EVENT_QOS)
    return gst_pad_event_default(src_, GST_OBJECT(element_), event);
  GstClockTimeDiff late = 0;
  GstClockTime at = GST_CLOCK_TIME_NONE;
  gst_event_parse_qos(event, nullptr, nullptr, &late, &at);
  gst_event_unref(event);
  if (!GST_CLOCK_TIME_IS_VALID(at)) return TRUE;
  const GstClockTimeDiff ahead = late > 0 ? 2 * late + GstClockTimeDiff(frame_time()) : late;
  earliest_ = GstClockTime(std::max<GstClockTimeDiff>(0, GstClockTimeDiff(at) + ahead));
  return TRUE;  // not forwarded: frames that are not shown are still trained on
}

gboolean Element::src_query(GstQuery* query) {
  if (GST_QUERY_TYPE(query) != GST_QUERY_LATENCY)
    return gst_pad_query_default(src_, GST_OBJECT(element_), query);
  if (!gst_pad_peer_query(sink_, query)) return FALSE;
  gboolean live = FALSE;
  GstClockTime least = 0, most = GST_CLOCK_TIME_NONE;
  gst_query_parse_latency(query, &live, &least, &most);
  // One frame time per stage, plus one for a frame waiting behind the previous one.
  if (latency_ == 0) latency_ = GstClockTime(config_.pipeline.stages + 1) * frame_time();
  const GstClockTime own = latency_;
  gst_query_set_latency(query, live, least + own,
                        GST_CLOCK_TIME_IS_VALID(most) ? most + own : GST_CLOCK_TIME_NONE);
  return TRUE;
}

}  // namespace millrace::gst
