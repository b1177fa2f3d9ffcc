#pragma once

#include <gst/gst.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "io/source/source.h"

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

  std::int64_t lost() const {
    const std::lock_guard lock(mutex_);
    return lost_;
  }
  /// Counts a gap as a reconnect: the frames around it are not consecutive.
  const std::shared_ptr<io::StreamHealth>& health() const { return health_; }

 private:
  const std::shared_ptr<io::StreamHealth> health_ = std::make_shared<io::StreamHealth>();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  io::Frame frame_;
  Stamp stamp_;
  bool full_ = false, ended_ = false, flushing_ = false;
  bool gap_ = false;
  std::int64_t lost_ = 0;
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

}  // namespace millrace::gst
