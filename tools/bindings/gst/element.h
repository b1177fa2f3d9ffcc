#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <gst/video/video.h>

#include "engine/format.h"
#include "io/source/gst_handles.h"
#include "tools/bindings/gst/learner.h"
#include "tools/bindings/gst/queues.h"

namespace millrace::gst {

// Pictures that may wait to be pushed: those of the reported latency, and some more.
constexpr int kRoom = 16;
constexpr double kUsualRate = 25;  // frames per second assumed without a rate

inline std::vector<std::string> lines_of(std::string text) {
  std::ranges::replace(text, '\n', ';');
  std::vector<std::string> lines = engine::split(text, ";");
  std::erase_if(lines,
                [](const std::string& line) { return line.find_first_not_of(" \t") == line.npos; });
  return lines;
}

/// The config from the properties; `sink` names the source in the report. Throws ConfigError.
inline app::Config config_of(const Settings& settings, const std::string& sink) {
  app::Config config = app::load_config(settings.config, lines_of(settings.set));
  config.source.uri = "gst:" + sink;  // for the report; it is not opened
  if (!settings.schedule.empty()) config.set("pipeline.schedule", settings.schedule);
  if (!settings.report.empty()) config.output.report = settings.report;
  if (!settings.weights.empty()) config.output.weights = settings.weights;
  return config;
}

/// Learns from frames at its sink pad and pushes pictures of predictions from its source pad.
/// Threads: the sink pad's streaming thread delivers frames and serialized events, the source pad's
/// task pushes pictures, and any thread may flush and query. Neither of the first two runs during a
/// state change, except in unblock().
class Element {
 public:
  /// `element` and its pads outlive this.
  Element(GstElement* element, GstPad* sink, GstPad* src)
      : element_(element), sink_(sink), src_(src), outlet_(kRoom) {
    gst_segment_init(&segment_, GST_FORMAT_TIME);
  }

  /// Guarded by the element's object lock.
  Settings settings;

  void settings_changed() {
    const double rate = copy_of_settings().rate;
    with_learner([&](Learner& learner) { learner.set_rate(rate); });
  }

  /// Frame and picture counts. The caller owns the result.
  GstStructure* stats() const {
    std::int64_t lost = 0;
    with_learner([&](Learner& learner) { lost = learner.mailbox().lost(); });
    return gst_structure_new("millrace-stats", "frames", G_TYPE_INT64, position_.load(), "lost",
                             G_TYPE_INT64, lost, "pictures", G_TYPE_INT64, pushed_.load(), "late",
                             G_TYPE_INT64, late_.load(), "not-shown", G_TYPE_INT64,
                             outlet_.dropped(), "loss", G_TYPE_DOUBLE, outlet_.loss(), nullptr);
  }

  /// False after posting an error.
  bool read_config() {
    return posts_error([&] {
      config_ = config_of(copy_of_settings(), std::string(GST_OBJECT_NAME(element_)) + ".sink");
    });
  }

  /// Before a stream, with the properties as they are now. False after posting an error.
  bool begin() {
    if (!read_config()) return false;
    outlet_.reset();
    position_ = pushed_ = late_ = 0;
    eos_ = false;
    downstream_ = GST_FLOW_OK;
    earliest_ = last_pts_ = GST_CLOCK_TIME_NONE;
    latency_ = 0;
    picture_.reset();
    in_.reset();
    gst_segment_init(&segment_, GST_FORMAT_TIME);
    discont_ = true;
    running_ = true;
    return true;
  }

  /// Before the pads are deactivated.
  void unblock() {
    with_learner([](Learner& learner) { learner.mailbox().end(); });
    outlet_.flush(true, position_);
  }

  /// After deactivation: drains the pipeline and saves.
  void finish() {
    std::unique_lock lock(mutex_);
    const std::unique_ptr<Learner> ended = std::move(learner_);
    lock.unlock();
  }
  /// After a stream: the properties may change.
  void stop() {
    finish();
    running_ = false;
  }

  // The sink pad: frames, events and queries from upstream.

  GstFlowReturn chain(GstBuffer* buffer) {
    const io::GstOwned<GstBuffer> owned(buffer);
    if (const GstFlowReturn flow = downstream_; flow != GST_FLOW_OK) return flow;
    if (!in_) return GST_FLOW_NOT_NEGOTIATED;
    if (eos_ || (learner_ && learner_->over())) return GST_FLOW_EOS;
    if (!learner_ && !posts_error([&] { start_learner(); })) return GST_FLOW_ERROR;
    if (!io::copy_pixels(buffer, *in_, frame_)) {
      GST_ELEMENT_ERROR(element_, STREAM, FORMAT, ("a frame can't be read"), (nullptr));
      return GST_FLOW_ERROR;
    }
    const Stamp stamp{position_++, GST_BUFFER_PTS(buffer), GST_BUFFER_DURATION(buffer)};
    const bool jumped = std::exchange(new_segment_, false) && !follows(stamp.pts);
    const bool gap = GST_BUFFER_IS_DISCONT(buffer) || jumped;
    last_pts_ = stamp.pts;
    if (GST_CLOCK_TIME_IS_VALID(stamp.pts)) frame_.pts = std::chrono::nanoseconds(stamp.pts);
    return learner_->mailbox().put(frame_, stamp, gap, !learner_->drops());
  }

  gboolean sink_event(GstEvent* raw) {
    io::GstOwned<GstEvent> event(raw);
    const GstEventType type = GST_EVENT_TYPE(raw);
    if (type == GST_EVENT_FLUSH_START) return flush_start(event.release());
    if (type == GST_EVENT_FLUSH_STOP) return flush_stop(event.release());
    if (type == GST_EVENT_EOS) {
      eos_ = true;
      eos_seqnum_ = gst_event_get_seqnum(raw);
      const std::lock_guard lock(mutex_);
      learner_ ? learner_->mailbox().end() : outlet_.end();
      return TRUE;
    }
    if (type == GST_EVENT_STREAM_START) restart_if_over();
    if (type == GST_EVENT_SEGMENT) new_segment_ = true;
    if (type == GST_EVENT_CAPS) {
      GstVideoInfo info;
      if (!gst_video_info_from_caps(&info, io::new_caps(raw))) return FALSE;
      const std::lock_guard lock(mutex_);
      in_ = info;
    }
    if (!GST_EVENT_IS_SERIALIZED(raw)) return gst_pad_push_event(src_, event.release());
    outlet_.put(event.release(), position_);
    return TRUE;
  }

  gboolean sink_query(GstQuery* query) {
    if (GST_QUERY_TYPE(query) == GST_QUERY_ALLOCATION) {
      gst_query_add_allocation_meta(query, GST_VIDEO_META_API_TYPE, nullptr);
      return TRUE;
    }
    if (GST_QUERY_TYPE(query) != GST_QUERY_CAPS)
      return gst_pad_query_default(sink_, GST_OBJECT(element_), query);
    const io::GstOwned<GstCaps> all(gst_pad_get_pad_template_caps(sink_));
    io::GstOwned<GstCaps> caps(gst_caps_intersect(all.get(), io::caps_of(channels()).get()));
    GstCaps* filter = nullptr;
    gst_query_parse_caps(query, &filter);
    if (filter) caps.reset(gst_caps_intersect_full(filter, caps.get(), GST_CAPS_INTERSECT_FIRST));
    gst_query_set_caps_result(query, caps.get());
    return TRUE;
  }

  // The source pad: pushes pictures, handles events and queries from downstream.

  gboolean activate_src(gboolean active) {
    if (!active) {
      outlet_.flush(true, position_);
      return gst_pad_stop_task(src_);
    }
    outlet_.flush(false, position_);
    return gst_pad_start_task(
        src_, [](gpointer self) { static_cast<Element*>(self)->push_next(); }, this, nullptr);
  }

  gboolean src_event(GstEvent* event) {
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

  gboolean src_query(GstQuery* query) {
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

 private:
  /// Calls `use` with the learner, if there is one; it lives at least as long as the call.
  template <class Use>
  void with_learner(const Use& use) const {
    const std::lock_guard lock(mutex_);
    if (learner_) use(*learner_);
  }

  /// Of the stream or, between two, as the properties are now: pads are linked before it starts.
  int channels() const {
    if (running_) return config_.source.channels;
    try {
      return config_of(copy_of_settings(), "").source.channels;
    } catch (const std::exception&) {
      return config_.source.channels;  // the start posts the error
    }
  }

  /// Whether a frame of that time comes right after the last one.
  bool follows(GstClockTime pts) const {
    if (!GST_CLOCK_TIME_IS_VALID(pts) || !GST_CLOCK_TIME_IS_VALID(last_pts_)) return true;
    const GstClockTime frame = frame_time();
    return std::abs(GST_CLOCK_DIFF(last_pts_ + frame, pts)) < GstClockTimeDiff(frame);
  }

  /// Whether `work` ends without an exception, which is posted.
  template <class Work>
  bool posts_error(const Work& work) {
    try {
      work();
      return true;
    } catch (const std::exception& error) {
      GST_ELEMENT_ERROR(element_, RESOURCE, SETTINGS, ("%s", error.what()), (nullptr));
      return false;
    }
  }

  Settings copy_of_settings() const {
    GST_OBJECT_LOCK(element_);
    Settings copy = settings;
    GST_OBJECT_UNLOCK(element_);
    return copy;
  }

  void start_learner() {
    live_ = io::is_fed_live(sink_);
    const io::SourceInfo info{.kind = "gstreamer",
                              .width = GST_VIDEO_INFO_WIDTH(&*in_),
                              .height = GST_VIDEO_INFO_HEIGHT(&*in_),
                              .fps = io::rate_of(*in_),
                              .live = live_};
    const Settings asked = copy_of_settings();
    // Asked at each start: an earlier run may have saved them.
    std::error_code unknown;
    if (std::filesystem::exists(asked.weights, unknown)) config_.weights.file = asked.weights;
    auto learner = std::make_unique<Learner>(config_, info, asked, element_, outlet_);
    const std::lock_guard lock(mutex_);
    learner_ = std::move(learner);
  }

  /// Starts a new run if the stream goes on after its end.
  void restart_if_over() {
    if (!eos_ && !(learner_ && learner_->over())) return;
    finish();
    eos_ = false;
    activate_src(TRUE);
  }

  gboolean flush_start(GstEvent* event) {
    gst_pad_push_event(src_, event);
    with_learner([](Learner& learner) { learner.mailbox().flush(true); });
    outlet_.flush(true, position_);
    gst_pad_pause_task(src_);
    return TRUE;
  }

  gboolean flush_stop(GstEvent* event) {
    gst_pad_push_event(src_, event);
    restart_if_over();
    with_learner([](Learner& learner) { learner.mailbox().flush(false); });
    gst_segment_init(&segment_, GST_FORMAT_TIME);
    earliest_ = GST_CLOCK_TIME_NONE;
    discont_ = true;
    downstream_ = GST_FLOW_OK;
    activate_src(TRUE);
    return TRUE;
  }

  void push_next() {
    GstEvent* event = nullptr;
    const Outlet::Next next = outlet_.next(shown_, event);
    if (next == Outlet::Next::picture) return push_picture();
    if (next == Outlet::Next::event) return push_event(event);
    if (next == Outlet::Next::end) {
      event = gst_event_new_eos();
      if (eos_seqnum_ != 0) gst_event_set_seqnum(event, eos_seqnum_);
      gst_pad_push_event(src_, event);
    }
    gst_pad_pause_task(src_);
  }

  /// Replaces caps by those of the network's pictures, which are known once a picture follows.
  void push_event(GstEvent* event) {
    if (GST_EVENT_TYPE(event) == GST_EVENT_SEGMENT) gst_event_copy_segment(event, &segment_);
    if (GST_EVENT_TYPE(event) == GST_EVENT_CAPS) {
      GstVideoInfo in;
      gst_video_info_from_caps(&in, io::new_caps(event));
      gst_event_unref(event);
      std::optional<std::array<int, 3>> shape;
      with_learner([&](Learner& learner) { shape = learner.shape(); });
      if (!shape) return;  // the run ended before the first picture
      picture_ = std::make_unique<Picture>(*shape, copy_of_settings().output);
      const bool stretched = config_.source.fit == "stretch" && config_.source.roi.empty();
      const io::GstOwned<GstCaps> caps(picture_->caps(in, stretched));
      event = gst_event_new_caps(caps.get());
    }
    gst_pad_push_event(src_, event);
  }

  void push_picture() {
    const GstClockTime running_time = io::running_time(segment_, shown_.stamp.pts);
    tell_latency();
    tell_prediction(running_time);
    if (is_late(running_time)) {
      ++late_;
      return tell_late(running_time);
    }
    GstBuffer* const buffer = picture_->draw(shown_);
    if (std::exchange(discont_, false)) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_DISCONT);
    const GstFlowReturn flow = gst_pad_push(src_, buffer);
    if (flow != GST_FLOW_OK) return give_up(flow);
    ++pushed_;
  }

  /// Refuses further frames and discards pictures in transit: nothing more can be pushed.
  void give_up(GstFlowReturn flow) {
    downstream_ = flow;
    outlet_.flush(true, position_);
    gst_pad_pause_task(src_);
    if (flow == GST_FLOW_NOT_LINKED || flow < GST_FLOW_EOS) GST_ELEMENT_FLOW_ERROR(element_, flow);
    if (flow != GST_FLOW_FLUSHING) gst_pad_push_event(src_, gst_event_new_eos());
  }

  bool is_late(GstClockTime running_time) const {
    const GstClockTime earliest = earliest_;
    if (!GST_CLOCK_TIME_IS_VALID(earliest) || !GST_CLOCK_TIME_IS_VALID(running_time)) return false;
    return running_time <= earliest && copy_of_settings().qos;
  }

  void tell_late(GstClockTime running_time) {
    const Stamp& stamp = shown_.stamp;
    GstMessage* const message =
        gst_message_new_qos(GST_OBJECT(element_), FALSE, running_time,
                            gst_segment_to_stream_time(&segment_, GST_FORMAT_TIME, stamp.pts),
                            stamp.pts, stamp.duration);
    gst_message_set_qos_stats(message, GST_FORMAT_BUFFERS, guint64(pushed_.load()),
                              guint64(late_.load()));
    gst_element_post_message(element_, message);
  }

  /// Posts {frame, loss, timestamp, running-time}, and the class if the network predicts one.
  void tell_prediction(GstClockTime running_time) {
    if (!copy_of_settings().post_messages) return;
    GstStructure* const told = gst_structure_new(
        "millrace", "frame", G_TYPE_INT64, shown_.frame, "timestamp", G_TYPE_UINT64,
        shown_.stamp.pts, "running-time", G_TYPE_UINT64, running_time, nullptr);
    if (!std::isnan(shown_.loss))
      gst_structure_set(told, "loss", G_TYPE_DOUBLE, double(shown_.loss), nullptr);
    if (config_.task.kind == "label") {
      const auto best = std::ranges::max_element(shown_.prediction);
      gst_structure_set(told, "class", G_TYPE_INT, int(best - shown_.prediction.begin()), nullptr);
    }
    gst_element_post_message(element_, gst_message_new_element(GST_OBJECT(element_), told));
  }

  /// Makes the pipeline query the latency again if a prediction took longer than reported. Only for
  /// live streams: otherwise predictions wait for downstream.
  void tell_latency() {
    if (!live_) return;
    double ms = 0;
    with_learner([&](Learner& learner) { ms = learner.latency_ms(); });
    const GstClockTime seen = GstClockTime(ms * GST_MSECOND), told = latency_;
    if (told == 0 || seen <= told) return;
    const GstClockTime frame = frame_time();
    latency_ = (seen / frame + 1) * frame;
    gst_element_post_message(element_, gst_message_new_latency(GST_OBJECT(element_)));
  }

  GstClockTime frame_time() const {
    double fps = config_.monitor.fps;
    const std::lock_guard lock(mutex_);
    if (fps <= 0 && in_) fps = io::rate_of(*in_);
    return GstClockTime(double(GST_SECOND) / (fps > 0 ? fps : kUsualRate));
  }

  GstElement* const element_;
  GstPad* const sink_;
  GstPad* const src_;
  app::Config config_;
  std::atomic<bool> running_{false};  ///< config_ is this stream's
  Outlet outlet_;
  mutable std::mutex mutex_;
  std::unique_ptr<Learner> learner_;  ///< under mutex_; null before the first frame
  std::optional<GstVideoInfo> in_;    ///< under mutex_; frame format; none before the caps event

  // Owned by the sink pad.
  std::atomic<std::int64_t> position_{0};        ///< buffers received
  io::Frame frame_;                              ///< swapped with the mailbox's
  bool new_segment_ = false;                     ///< since the last frame
  GstClockTime last_pts_ = GST_CLOCK_TIME_NONE;  ///< of the last frame
  std::atomic<bool> eos_{false}, live_{false};
  std::atomic<guint32> eos_seqnum_{0};

  // Owned by the source pad.
  Shown shown_;
  std::unique_ptr<Picture> picture_;
  GstSegment segment_;
  bool discont_ = true;
  std::atomic<GstFlowReturn> downstream_{GST_FLOW_OK};
  std::atomic<GstClockTime> earliest_{GST_CLOCK_TIME_NONE};  ///< running time; earlier is too late
  std::atomic<GstClockTime> latency_{0};
  std::atomic<std::int64_t> pushed_{0}, late_{0};
};

}  // namespace millrace::gst
