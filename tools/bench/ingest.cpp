#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gst/gst.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <stdexcept>
#include <thread>

#include "engine/monitor/median.h"
#include "engine/pipeline/pinning.h"
#include "io/queue/frame_queue.h"
#include "io/queue/planar.h"
#include "io/queue/resizer.h"
#include "tools/bench/measure.h"

namespace millrace::bench {
namespace {

constexpr int kRoom = 8;            // in a run's queue when nothing is dropped
constexpr int kFrames = kRoom + 1;  // and the frame being written
constexpr int kSlots = 3;           // partime's with two stages

using engine::Clock;
using namespace std::chrono_literals;

/// One sender and one receiver: each frame is sent when the previous one has arrived and `pause` is
/// over. Measures from before the sender's call until the receiver has the frame.
class Meeting {
 public:
  Meeting(std::chrono::microseconds pause, double seconds) : pause_(pause), seconds_(seconds) {}

  void arrived() {
    if (times_.empty()) engine::pin_this_thread(0);  // the only place to pin GStreamer's thread
    times_.push_back(std::chrono::duration<double, std::nano>(Clock::now() - sent_).count());
    arrivals_.fetch_add(1, std::memory_order_release);
  }

  /// Calls `send` once per frame, in a thread on another core than the receiver's.
  template <class Send>
  void drive(const Send& send) {
    std::thread([&] {
      engine::pin_this_thread(engine::usable_cores() - 1);
      const auto end = Clock::now() + seconds_;
      for (std::int64_t sent = 1; sent == 1 || Clock::now() < end; ++sent) {
        sent_ = Clock::now();
        send();
        while (arrivals_.load(std::memory_order_acquire) < sent) std::this_thread::yield();
        if (pause_ > 0us) std::this_thread::sleep_for(pause_);
      }
    }).join();
  }

  double median_ns() const { return engine::median(times_); }

 private:
  const std::chrono::microseconds pause_;
  const std::chrono::duration<double> seconds_;
  Clock::time_point sent_;
  std::vector<double> times_;
  std::atomic<std::int64_t> arrivals_{0};
};

GstFlowReturn on_buffer(GstPad* pad, GstObject*, GstBuffer* buffer) {
  static_cast<Meeting*>(gst_pad_get_element_private(pad))->arrived();
  gst_buffer_unref(buffer);
  return GST_FLOW_OK;
}

double by_frame_queue(Meeting meeting) {
  io::FrameQueue queue(kRoom, io::Drop::never);
  std::thread receiver([&] {
    while (!queue.drained()) {
      io::Frame* const frame = queue.pop(20ms);
      if (!frame) continue;
      meeting.arrived();
      queue.release(frame);
    }
  });
  meeting.drive([&] { queue.push(); });
  queue.close();
  receiver.join();
  return meeting.median_ns();
}

/// A std::deque with a mutex and a condition variable.
double by_mutex(Meeting meeting) {
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
  meeting.drive([&] { put(0); });
  put(-1);
  receiver.join();
  return meeting.median_ns();
}

/// GStreamer's `queue`, from pad to pad, without other elements.
double by_gstreamer(Meeting meeting) {
  gst_init(nullptr, nullptr);
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
  meeting.drive([&] { gst_pad_push(from, gst_buffer_ref(buffer)); });
  gst_element_set_state(queue, GST_STATE_NULL);
  gst_buffer_unref(buffer);
  for (GstPad* const pad : {in, out, from, to}) gst_object_unref(pad);
  gst_object_unref(queue);
  return meeting.median_ns();
}

}  // namespace

/// {"width", "height", "channels", "seconds"}: microseconds from decoded frame to sample, per way.
const Question kIngest("ingest", [](const Json& question) -> Json {
  at::set_num_threads(1);
  cv::setNumThreads(1);
  const int width = question.at("width"), height = question.at("height"),
            channels = question.at("channels");
  std::vector<io::Frame> frames;
  for (int i = 0; i < kFrames; ++i) {
    io::Frame& frame = frames.emplace_back();
    frame.reshape(width, height, channels);
    for (std::size_t k = 0; k < frame.bytes(); ++k) frame.pixels[k] = std::uint8_t(k * 31 + i);
  }
  // Reads one byte per byte of the picture, writes a float: the traffic of copying 2.5 bytes.
  const std::size_t copied = frames[0].bytes() * 5 / 2;
  std::vector<at::Tensor> slots;
  std::vector<std::vector<std::uint8_t>> from, to;
  for (int i = 0; i < kSlots; ++i) {
    slots.push_back(at::zeros({1, channels, height, width}));
    from.emplace_back(copied, std::uint8_t(i));
    to.emplace_back(copied, std::uint8_t(0));
  }
  io::Resizer resizer(width, height);
  cv::Mat rgb, floats;
  const auto ours = [&](int n) {
    io::to_planar(resizer.fit(frames[n % kFrames]), slots[n % kSlots].mutable_data_ptr<float>());
  };
  const auto by_memcpy = [&](int n) {
    std::memcpy(to[n % kSlots].data(), from[n % kSlots].data(), copied);
  };
  const auto by_opencv = [&](int n) {
    cv::Mat picture(height, width, CV_MAKETYPE(CV_8U, channels), frames[n % kFrames].pixels.data());
    if (channels == 3) {
      cv::cvtColor(picture, rgb, cv::COLOR_BGR2RGB);  // OpenCV decodes to BGR
      picture = rgb;
    }
    picture.convertTo(floats, CV_32F, 1.0 / 255);
    const at::Tensor tensor = at::from_blob(floats.data, {1, height, width, channels});
    slots[n % kSlots].copy_(tensor.permute({0, 3, 1, 2}));
  };
  const double seconds = question.at("seconds");
  return {{"ingest_us", 1e3 * median_ms(seconds, 2, ours)},
          {"memcpy_us", 1e3 * median_ms(seconds, 2, by_memcpy)},
          {"opencv_us", 1e3 * median_ms(seconds, 2, by_opencv)}};
});

/// {"pause_us", "seconds"}: nanoseconds to pass a frame from thread to thread, per way.
const Question kHop("hop", [](const Json& question) -> Json {
  const std::chrono::microseconds pause(question.at("pause_us").get<int>());
  const double seconds = question.at("seconds");
  return {{"queue_ns", by_frame_queue({pause, seconds})},
          {"gstreamer_ns", by_gstreamer({pause, seconds})},
          {"mutex_ns", by_mutex({pause, seconds})}};
});

}  // namespace millrace::bench
