#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include <gst/video/video.h>

#include "tools/bindings/gst/learner.h"
#include "tools/bindings/gst/outlet.h"

namespace millrace::gst {

/// Learns from frames at its sink pad and pushes pictures of predictions from its source pad.
/// Threads: the sink pad's streaming thread delivers frames and serialized events, the source pad's
/// task pushes pictures, and any thread may flush and query. Neither of the first two runs during a
/// state change, except in unblock().
class Element {
 public:
  /// `element` and its pads outlive this.
  Element(GstElement* element, GstPad* sink, GstPad* src);

  /// Guarded by the element's object lock.
  Settings settings;
  void settings_changed();
  /// Frame and picture counts. The caller owns the result.
  GstStructure* stats() const;

  bool read_config();  ///< false after posting an error
  void reset();
  void unblock();  ///< before the pads are deactivated
  void finish();   ///< after deactivation: drains the pipeline and saves

  GstFlowReturn chain(GstBuffer* buffer);
  gboolean sink_event(GstEvent* event);
  gboolean sink_query(GstQuery* query);
  gboolean src_event(GstEvent* event);
  gboolean src_query(GstQuery* query);
  gboolean activate_src(gboolean active);

 private:
  Settings copy_of_settings() const;
  /// Calls `use` with the learner, if there is one; it lives at least as long as the call.
  template <class Use>
  void with_learner(const Use& use) const {
    const std::lock_guard lock(mutex_);
    if (learner_) use(*learner_);
  }
  void start_learner();
  void restart_if_over();
  void flush_start(GstEvent* event);
  void flush_stop(GstEvent* event);

  void push_next();
  void push_event(GstEvent* event);
  GstFlowReturn push_picture();
  void give_up(GstFlowReturn flow);
  bool is_late(GstClockTime running_time) const;
  void tell_late(GstClockTime running_time);
  void tell_prediction(GstClockTime running_time);
  void tell_latency();

  GstClockTime frame_time() const;

  GstElement* const element_;
  GstPad* const sink_;
  GstPad* const src_;
  app::Config config_;
  Outlet outlet_;
  mutable std::mutex mutex_;
  std::unique_ptr<Learner> learner_;  ///< under mutex_; null before the first frame
  std::optional<GstVideoInfo> in_;    ///< under mutex_; frame format; none before the caps event

  // Owned by the sink pad.
  std::atomic<std::int64_t> position_{0};  ///< buffers received
  io::Frame frame_;                        ///< swapped with the mailbox's
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
