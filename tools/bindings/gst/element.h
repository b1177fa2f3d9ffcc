// What the element does: frames from its sink pad are learned from, pictures of what the network
// makes of them leave by its source pad.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include <gst/video/video.h>

#include "tools/bindings/gst/learner.h"
#include "tools/bindings/gst/outlet.h"
#include "tools/bindings/gst/settings.h"

namespace millrace::gst {

/// Threads: the sink pad's streaming thread gives frames and serialized events, the source pad's
/// task pushes pictures, anyone flushes and asks; a state change comes while neither runs, but for
/// unblock().
class Element {
 public:
  /// The pads are the element's, all of which outlive this.
  Element(GstElement* element, GstPad* sink, GstPad* src);

  /// Under the element's object lock.
  Settings settings;
  void set_rate(double times);
  /// How many frames came and what became of them. The caller's.
  GstStructure* stats() const;

  // State changes.
  bool read_config();  ///< false: it can't be used, which is told
  void reset();
  void unblock();  ///< before the pads are deactivated
  void finish();   ///< after it: what is in flight is finished and all is saved

  // The pads.
  GstFlowReturn chain(GstBuffer* buffer);
  gboolean sink_event(GstEvent* event);
  gboolean sink_query(GstQuery* query);
  gboolean src_event(GstEvent* event);
  gboolean src_query(GstQuery* query);
  gboolean activate_src(gboolean active);

 private:
  Settings copy_of_settings() const;
  void start_learner();
  void end_learner();
  void restart_if_over();
  void copy_frame(const GstVideoFrame& from);
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

  GstCaps* caps_of_samples() const;
  GstClockTime frame_time() const;

  GstElement* const element_;
  GstPad* const sink_;
  GstPad* const src_;
  app::Config config_;
  Outlet outlet_;
  mutable std::mutex mutex_;
  std::unique_ptr<Learner> learner_;  ///< under mutex_; null: no frame came yet
  std::optional<GstVideoInfo> in_;    ///< under mutex_; of frames; none: no caps came yet

  // The sink pad's.
  std::atomic<std::int64_t> position_{0};  ///< buffers that came
  io::Frame frame_;                        ///< storage that is exchanged with the mailbox's
  std::atomic<bool> eos_{false}, over_{false};
  std::atomic<bool> live_{false};
  std::atomic<guint32> eos_seqnum_{0};

  // The source pad's.
  Shown shown_;
  std::unique_ptr<Picture> picture_;
  GstSegment segment_;
  bool discont_ = true;
  std::atomic<GstFlowReturn> downstream_{GST_FLOW_OK};
  std::atomic<GstClockTime> earliest_{GST_CLOCK_TIME_NONE};  ///< running time that is not too late
  std::atomic<GstClockTime> latency_{0};                     ///< as told last
  std::atomic<std::int64_t> pushed_{0}, late_{0};
  std::atomic<float> loss_{0};
};

}  // namespace millrace::gst
