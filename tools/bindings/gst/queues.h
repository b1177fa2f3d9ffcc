// The queues between threads of GStreamer and of a run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "io/source/gst_handles.h"
#include "io/source/source.h"
#include "tools/app/run.h"

namespace millrace::gst {

/// A frame's buffer without its pixels.
struct Stamp {
  std::int64_t position = 0;  ///< index of the buffer on the pad
  GstClockTime pts = GST_CLOCK_TIME_NONE;
  GstClockTime duration = GST_CLOCK_TIME_NONE;
};

/// Passes frames, one at a time, from a sink pad to a run's reader, and remembers their stamps.
/// Thread-safe: streaming thread put(), reader take(), last stage's worker stamp_of().
class Mailbox {
 public:
  /// Swaps `frame` into the mailbox. `wait`: blocks until there is room; otherwise replaces the
  /// frame in the mailbox. That one, or a refused one, counts as lost. `gap`: frames are missing
  /// before this one.
  GstFlowReturn put(io::Frame& frame, const Stamp& stamp, bool gap, bool wait) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !full_ || !wait || flushing_ || ended_; });
    if (full_ || flushing_ || ended_) ++lost_;
    if (flushing_) return GST_FLOW_FLUSHING;
    if (ended_) return GST_FLOW_EOS;
    gap_ = gap_ || gap || full_;
    std::swap(frame_, frame);
    stamp_ = stamp;
    full_ = true;
    changed_.notify_all();
    return GST_FLOW_OK;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  /// On: discards the waiting frame and refuses new ones.
  void flush(bool on) {
    const std::lock_guard lock(mutex_);
    if (on && full_) ++lost_;
    if (on) full_ = false;
    flushing_ = on;
    gap_ = true;
    changed_.notify_all();
  }

  io::ReadStatus take(io::Frame& out, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return full_ || ended_; }))
      return io::ReadStatus::timeout;
    if (!full_) return io::ReadStatus::end;
    std::swap(out, frame_);
    const bool first = first_ == 0 && stamps_.empty();
    if (std::exchange(gap_, false) && !first) ++health_->reconnects;
    stamps_.push_back(stamp_);
    full_ = false;
    changed_.notify_all();
    return io::ReadStatus::frame;
  }
  /// The stamp of frame `id`, counted from 0 in take(). None if it is not taken yet or forgotten.
  std::optional<Stamp> stamp_of(std::int64_t id) {
    const std::lock_guard lock(mutex_);
    if (id < first_ || id >= first_ + std::int64_t(stamps_.size())) return std::nullopt;
    return stamps_[std::size_t(id - first_)];
  }
  void forget_before(std::int64_t id) {
    const std::lock_guard lock(mutex_);
    for (; first_ < id && !stamps_.empty(); ++first_) stamps_.pop_front();
  }

  std::int64_t lost() const { return lost_; }
  /// Counts a gap as a reconnect: the frames around it are not consecutive.
  const std::shared_ptr<io::StreamHealth>& health() const { return health_; }

 private:
  const std::shared_ptr<io::StreamHealth> health_ = std::make_shared<io::StreamHealth>();
  std::mutex mutex_;
  std::condition_variable changed_;
  io::Frame frame_;
  Stamp stamp_;
  bool full_ = false, ended_ = false, flushing_ = false;
  bool gap_ = false;
  std::atomic<std::int64_t> lost_{0};
  std::int64_t first_ = 0;  ///< the frame of stamps_.front()
  std::deque<Stamp> stamps_;
};

/// A run's source that shares ownership of the mailbox.
class MailboxSource final : public io::Source {
 public:
  MailboxSource(std::shared_ptr<Mailbox> mailbox, const io::SourceInfo& info)
      : mailbox_(std::move(mailbox)), info_(info) {}

  io::SourceInfo info() const override { return info_; }
  io::ReadStatus read(io::Frame& out, std::chrono::milliseconds timeout) override {
    return mailbox_->take(out, timeout);
  }
  bool rewind() override { return false; }
  std::shared_ptr<const io::StreamHealth> health() const override { return mailbox_->health(); }

 private:
  const std::shared_ptr<Mailbox> mailbox_;
  const io::SourceInfo info_;
};

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
    events_.push_back({io::GstOwned<GstEvent>(event), position});
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
      // Sticky events stay, but for the end and the segment: later pictures need them.
      std::erase_if(events_, [](const Event& one) {
        const GstEventType type = GST_EVENT_TYPE(one.event.get());
        return !GST_EVENT_IS_STICKY(one.event.get()) || type == GST_EVENT_SEGMENT ||
               type == GST_EVENT_EOS;
      });
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
    events_.clear();
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
      event = events_.front().event.release();
      events_.pop_front();
      return Next::event;
    }
    if (waiting_.empty()) return Next::end;
    picture = std::move(waiting_.front());
    waiting_.pop_front();
    changed_.notify_all();
    return Next::picture;
  }

  std::int64_t dropped() const { return dropped_; }
  /// The loss of the latest prediction.
  double loss() const { return loss_; }

 private:
  void drop_pictures() {
    while (!waiting_.empty()) {
      spare_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }

  const std::size_t room_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Shown> waiting_;
  std::vector<Shown> spare_;
  struct Event {
    io::GstOwned<GstEvent> event;
    std::int64_t position;
  };
  std::deque<Event> events_;
  std::int64_t from_ = 0;  ///< pictures of earlier frames were flushed
  std::atomic<std::int64_t> dropped_{0};
  std::atomic<double> loss_{0};
  bool ended_ = false, flushing_ = true;
};

}  // namespace millrace::gst
