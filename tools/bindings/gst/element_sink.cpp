// The sink pad: frames, events and queries from upstream.
#include "io/source/gst_handles.h"
#include "tools/bindings/gst/element.h"

namespace millrace::gst {

using Caps = io::GstOwned<GstCaps>;

GstFlowReturn Element::chain(GstBuffer* buffer) {
  const io::GstOwned<GstBuffer> owned(buffer);
  if (const GstFlowReturn flow = downstream_; flow != GST_FLOW_OK) return flow;
  if (!in_) return GST_FLOW_NOT_NEGOTIATED;
  if (eos_ || (learner_ && learner_->over())) return GST_FLOW_EOS;
  if (!learner_) start_learner();
  GstVideoFrame from;
  if (!gst_video_frame_map(&from, &*in_, buffer, GST_MAP_READ)) {
    GST_ELEMENT_ERROR(element_, STREAM, FORMAT, ("a frame can't be read"), (nullptr));
    return GST_FLOW_ERROR;
  }
  io::copy_pixels(from, frame_);
  gst_video_frame_unmap(&from);
  const Stamp stamp{position_++, GST_BUFFER_PTS(buffer), GST_BUFFER_DURATION(buffer)};
  if (GST_CLOCK_TIME_IS_VALID(stamp.pts)) frame_.pts = std::chrono::nanoseconds(stamp.pts);
  return learner_->mailbox().put(frame_, stamp, GST_BUFFER_IS_DISCONT(buffer), !learner_->drops());
}

gboolean Element::sink_event(GstEvent* event) {
  switch (GST_EVENT_TYPE(event)) {
    case GST_EVENT_FLUSH_START:
      flush_start(event);
      return TRUE;
    case GST_EVENT_FLUSH_STOP:
      flush_stop(event);
      return TRUE;
    case GST_EVENT_EOS: {
      eos_ = true;
      eos_seqnum_ = gst_event_get_seqnum(event);
      gst_event_unref(event);
      const std::lock_guard lock(mutex_);
      if (learner_) {
        learner_->mailbox().end();
      } else {
        outlet_.end();
      }
      return TRUE;
    }
    case GST_EVENT_CAPS: {
      GstCaps* caps = nullptr;
      gst_event_parse_caps(event, &caps);
      GstVideoInfo info;
      if (!gst_video_info_from_caps(&info, caps)) {
        gst_event_unref(event);
        return FALSE;
      }
      const std::lock_guard lock(mutex_);
      in_ = info;
      break;
    }
    case GST_EVENT_STREAM_START:
      restart_if_over();
      break;
    default:
      break;
  }
  if (!GST_EVENT_IS_SERIALIZED(event)) return gst_pad_push_event(src_, event);
  outlet_.put(event, position_);
  return TRUE;
}

void Element::flush_start(GstEvent* event) {
  gst_pad_push_event(src_, event);
  with_learner([](Learner& learner) { learner.mailbox().flush(true); });
  outlet_.flush(true, position_);
  gst_pad_pause_task(src_);
}

void Element::flush_stop(GstEvent* event) {
  gst_pad_push_event(src_, event);
  restart_if_over();
  with_learner([](Learner& learner) { learner.mailbox().flush(false); });
  gst_segment_init(&segment_, GST_FORMAT_TIME);
  earliest_ = GST_CLOCK_TIME_NONE;
  discont_ = true;
  downstream_ = GST_FLOW_OK;
  outlet_.flush(false, position_);
  activate_src(TRUE);
}

/// Starts a new run if the stream goes on after its end.
void Element::restart_if_over() {
  if (!eos_ && !(learner_ && learner_->over())) return;
  finish();
  eos_ = false;
  outlet_.flush(false, position_);
  activate_src(TRUE);
}

gboolean Element::sink_query(GstQuery* query) {
  switch (GST_QUERY_TYPE(query)) {
    case GST_QUERY_CAPS: {
      const Caps all(gst_pad_get_pad_template_caps(sink_));
      const Caps taken(gst_caps_new_simple("video/x-raw", "format", G_TYPE_STRING,
                                           config_.source.channels == 1 ? "GRAY8" : "RGB",
                                           nullptr));
      Caps caps(gst_caps_intersect(all.get(), taken.get()));
      GstCaps* filter = nullptr;
      gst_query_parse_caps(query, &filter);
      if (filter) caps.reset(gst_caps_intersect_full(filter, caps.get(), GST_CAPS_INTERSECT_FIRST));
      gst_query_set_caps_result(query, caps.get());
      return TRUE;
    }
    case GST_QUERY_ALLOCATION:
      gst_query_add_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr);
      return TRUE;
    default:
      return gst_pad_query_default(sink_, GST_OBJECT(element_), query);
  }
}

}  // namespace millrace::gst
