#include "tools/bench/hop.h"

#include <gst/gst.h>  // its queue

#include <atomic>              // arrivals
#include <condition_variable>  // one way
#include <deque>               // one way
#include <mutex>               // one way
#include <stdexcept>           // GStreamer without a queue
#include <thread>              // receivers

#include "engine/pipeline/pinning.h"
#include "io/queue/frame_queue.h"

namespace millrace::bench {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kRoom = 8;  // as much as a run's queue has where nothing is dropped

/// What sender and receiver know of each other, by whichever way frames go. One of each.
class Meeting {
 public:
  /// Receiver: a frame is here.
  void arrived() {
    if (times_.empty()) engine::pin_this_thread(0);  // GStreamer's thread is met here alone
    times_.push_back(std::chrono::duration<double, std::nano>(Clock::now() - sent_).count());
    arrivals_.fetch_add(1, std::memory_order_release);
  }

  /// Calls `send` once a frame, in a thread on another core than the receiver's.
  template <class Send>
  void drive(const Traffic& traffic, double seconds, const Send& send) {
    std::thread([&] {
      engine::pin_this_thread(engine::usable_cores() - 1);
      send_all(traffic, seconds, send);
    }).join();
  }

  std::vector<double> times() && { return std::move(times_); }

 private:
  template <class Send>
  void send_all(const Traffic& traffic, double seconds, const Send& send) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    for (std::int64_t sent = 1; sent == 1 || Clock::now() < end; ++sent) {
      sent_ = Clock::now();
      send();
      while (arrivals_.load(std::memory_order_acquire) < sent) std::this_thread::yield();
      if (traffic.pause > 0us) std::this_thread::sleep_for(traffic.pause);
    }
  }

  Clock::time_point sent_;
  std::vector<double> times_;
  std::atomic<std::int64_t> arrivals_{0};
};

GstFlowReturn on_buffer(GstPad* pad, GstObject*, GstBuffer* buffer) {
  static_cast<Meeting*>(gst_pad_get_element_private(pad))->arrived();
  gst_buffer_unref(buffer);
  return GST_FLOW_OK;
}

}  // namespace

std::vector<double> hop_by_frame_queue(const Traffic& traffic, double seconds) {
  Meeting meeting;
  io::FrameQueue queue(kRoom, io::Drop::never);
  std::thread receiver([&] {
    while (!queue.drained()) {
      io::Frame* const frame = queue.pop(20ms);
      if (!frame) continue;
      meeting.arrived();
      queue.release(frame);
    }
  });
  meeting.drive(traffic, seconds, [&] { queue.push(); });
  queue.close();
  receiver.join();
  return std::move(meeting).times();
}

std::vector<double> hop_by_mutex(const Traffic& traffic, double seconds) {
  Meeting meeting;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<int> waiting;
  const auto put = [&](int slot) {
    {
      const std::lock_guard lock(mutex);
      waiting.push_back(slot);
    }
    changed.notify_one();
  };
  std::thread receiver([&] {
    for (int slot = 0; slot >= 0;) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !waiting.empty(); });
      slot = waiting.front();
      waiting.pop_front();
      lock.unlock();
      if (slot >= 0) meeting.arrived();
    }
  });
  meeting.drive(traffic, seconds, [&] { put(0); });
  put(-1);  // the end
  receiver.join();
  return std::move(meeting).times();
}

std::vector<double> hop_by_gstreamer(const Traffic& traffic, double seconds) {
  gst_init(nullptr, nullptr);
  Meeting meeting;
  GstElement* const queue = gst_element_factory_make("queue", nullptr);
  if (!queue) throw std::runtime_error("GStreamer has no element \"queue\"");
  gst_object_ref_sink(queue);
  g_object_set(queue, "max-size-buffers", guint(kRoom), "max-size-bytes", 0u, "max-size-time",
               guint64(0), nullptr);
  GstPad* const from = gst_pad_new("src", GST_PAD_SRC);
  GstPad* const to = gst_pad_new("sink", GST_PAD_SINK);
  gst_pad_set_element_private(to, &meeting);
  gst_pad_set_chain_function(to, on_buffer);
  gst_pad_set_active(from, TRUE);
  gst_pad_set_active(to, TRUE);
  GstPad* const in = gst_element_get_static_pad(queue, "sink");
  GstPad* const out = gst_element_get_static_pad(queue, "src");
  gst_pad_link(from, in);
  gst_pad_link(out, to);
  gst_element_set_state(queue, GST_STATE_PLAYING);
  gst_pad_push_event(from, gst_event_new_stream_start("hop"));
  GstSegment segment;
  gst_segment_init(&segment, GST_FORMAT_TIME);
  gst_pad_push_event(from, gst_event_new_segment(&segment));
  GstBuffer* const buffer = gst_buffer_new();
  meeting.drive(traffic, seconds, [&] { gst_pad_push(from, gst_buffer_ref(buffer)); });
  gst_element_set_state(queue, GST_STATE_NULL);
  gst_buffer_unref(buffer);
  for (GstPad* const pad : {in, out, from, to}) gst_object_unref(pad);
  gst_object_unref(queue);
  return std::move(meeting).times();
}

}  // namespace millrace::bench
