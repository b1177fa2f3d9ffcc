#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "tools/app/run.h"
#include "tools/bindings/gst/mailbox.h"

namespace millrace::gst {

struct Shown {
  Stamp stamp;
  std::int64_t frame = 0;  ///< the source's frame number
  float loss = 0;          ///< NaN: no target
  std::vector<float> input, target, prediction;
};

/// Passes pictures and events from a run to a source pad, in stream order. Thread-safe: the last
/// stage's worker puts pictures, the sink pad puts events, and the source pad's task calls next().
/// An event leaves before the first picture of a frame that arrived after it.
class Outlet {
 public:
  explicit Outlet(int room) : room_(std::size_t(room)), spare_(room_ + 1) {}
  ~Outlet() { drop_events(true); }

  /// Without room, `wait` blocks; otherwise the picture is dropped.
  void put(const app::Prediction& prediction, const Stamp& stamp, bool wait) {
    std::unique_lock lock(mutex_);
    loss_ = prediction.loss;
    const auto unwanted = [&] { return flushing_ || stamp.position < from_; };
    if (wait) changed_.wait(lock, [&] { return waiting_.size() < room_ || unwanted(); });
    if (unwanted()) return;
    if (waiting_.size() >= room_) {
      ++dropped_;
      return;
    }
    Shown shown;
    if (!spare_.empty()) {
      shown = std::move(spare_.back());
      spare_.pop_back();
    }
    shown.stamp = stamp;
    shown.frame = prediction.frame;
    shown.loss = prediction.loss;
    shown.input.assign(prediction.input.begin(), prediction.input.end());
    shown.target.assign(prediction.target.begin(), prediction.target.end());
    shown.prediction.assign(prediction.prediction.begin(), prediction.prediction.end());
    waiting_.push_back(std::move(shown));
    changed_.notify_all();
  }
  /// Takes ownership. `position`: of the first buffer after the event.
  void put(GstEvent* event, std::int64_t position) {
    const std::lock_guard lock(mutex_);
    events_.push_back({event, position});
    changed_.notify_all();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  /// On: discards everything, also later pictures of frames before `position`, and wakes next().
  /// Off: starts again.
  void flush(bool on, std::int64_t position) {
    const std::lock_guard lock(mutex_);
    flushing_ = on;
    if (on) {
      from_ = position;
      drop_pictures();
      drop_events(false);
    } else {
      ended_ = false;
    }
    changed_.notify_all();
  }
  /// Back to the initial state, empty and flushing; positions start at 0 again.
  void reset() {
    const std::lock_guard lock(mutex_);
    flushing_ = true;
    ended_ = false;
    from_ = dropped_ = 0;
    drop_pictures();
    drop_events(true);
  }

  enum class Next { picture, event, end, flushing };
  /// Waits for the next item. The caller owns an event.
  Next next(Shown& picture, GstEvent*& event) {
    std::unique_lock lock(mutex_);
    if (!picture.input.empty()) spare_.push_back(std::exchange(picture, {}));
    changed_.wait(lock, [&] { return flushing_ || ended_ || !waiting_.empty(); });
    if (flushing_) return Next::flushing;
    const bool due = !events_.empty() && (waiting_.empty() || events_.front().position <=
                                                                  waiting_.front().stamp.position);
    if (due) {
      event = events_.front().event;
      events_.pop_front();
      return Next::event;
    }
    if (waiting_.empty()) return Next::end;
    picture = std::move(waiting_.front());
    waiting_.pop_front();
    changed_.notify_all();
    return Next::picture;
  }

  std::int64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }
  /// The loss of the latest prediction.
  double loss() const {
    const std::lock_guard lock(mutex_);
    return loss_;
  }

 private:
  void drop_pictures() {
    while (!waiting_.empty()) {
      spare_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }
  void drop_events(bool all) {
    const auto stays = [](GstEvent* event) {
      return GST_EVENT_IS_STICKY(event) && GST_EVENT_TYPE(event) != GST_EVENT_SEGMENT &&
             GST_EVENT_TYPE(event) != GST_EVENT_EOS;
    };
    std::erase_if(events_, [&](const Event& one) {
      if (!all && stays(one.event)) return false;
      gst_event_unref(one.event);
      return true;
    });
  }

  const std::size_t room_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Shown> waiting_;
  std::vector<Shown> spare_;
  struct Event {
    GstEvent* event;
    std::int64_t position;
  };
  std::deque<Event> events_;
  std::int64_t from_ = 0;  ///< pictures of earlier frames were flushed
  std::int64_t dropped_ = 0;
  double loss_ = 0;
  bool ended_ = false, flushing_ = true;
};

}  // namespace millrace::gst
