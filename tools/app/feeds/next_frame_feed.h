#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/app/feeds/frame_feed.h"

namespace millrace::app {

struct Ahead {
  int horizon = 1;  ///< frames from a sample's latest frame to its target
  int context = 1;  ///< frames in a sample
};

/// A frame's target is the frame `Ahead::horizon` later in the same segment of the stream. There is
/// none if that frame was dropped or not decoded, or if an outage or a loop's seam lies between.
///
/// A sample begins with the frames before its own in the segment. If there are too few, the
/// earliest is repeated, as if nothing had moved.
///
/// Late targets: a frame becomes a sample at once, so the network predicts the future. Its target
/// is written when it arrives; if it never does, the sample has none. Stages that wait for targets
/// take frames from the queue themselves, so the pipeline can be full meanwhile. Otherwise, for
/// streams read faster than they were filmed, a frame becomes a sample once its target has arrived,
/// and frames without one are left out.
///
/// Once the queue has dropped frames, the next sample is the newest frame whose target is there,
/// and older ones are skipped: a target that is still to come would be dropped while stages work.
///
/// mutex_ is held to take one frame, by stage 0's worker or by a worker waiting for a target, which
/// then wakes the other waiting workers.
class NextFrameFeed final : public FrameFeed {
 public:
  /// `slots`: samples in flight.
  NextFrameFeed(io::FrameQueue& queue, io::Resizer& resizer, Ahead ahead, bool late, int slots)
      : FrameFeed(queue, resizer, TargetFrom::later_frame),
        horizon_(ahead.horizon),
        context_(ahead.context),
        late_(late),
        window_(std::size_t(ahead.horizon) + std::size_t(ahead.context)),
        awaited_(std::size_t(slots)) {}

  Status poll(std::chrono::microseconds patience) override {
    if (rests()) {
      std::this_thread::sleep_for(patience);
      return Status::wait;
    }
    const std::lock_guard lock(mutex_);
    if (waiting() == 0 && !look(patience)) return ended_ ? Status::end : Status::wait;
    if (late_ && !behind() && waiting() <= horizon_) look(std::chrono::microseconds(0));
    if (behind()) {
      catch_up();
    } else if (late_) {
      return Status::ready;
    }
    bool never = false;
    if (pair(never)) return Status::ready;
    if (never) {
      unpaired_.fetch_add(1, std::memory_order_relaxed);
      ++passed_;
    } else {
      look(patience);
    }
    return Status::wait;
  }
  void take(engine::Sample& sample) override {
    const std::lock_guard lock(mutex_);
    const io::Frame& frame = at(passed_);
    write_context(sample);
    sample.info = info_of(frame);
    bool never = false;
    if (!late_) write_target(*pair(never), sample);
    ++passed_;
    if (!late_) return;
    Awaited& awaited = awaited_[std::size_t(sample.slot)];
    awaited.sample = &sample;
    awaited.frame = frame.id;
    awaited.segment = frame.segment;
    awaited.target.store(Target::open, std::memory_order_relaxed);
    for (std::int64_t n = passed_; n < arrived_; ++n) tell(awaited, at(n));
    if (ended_) miss(awaited);
  }
  Status target(engine::Sample& sample, std::chrono::microseconds patience) override {
    const Awaited& awaited = awaited_[std::size_t(sample.slot)];
    for (const bool again : {false, true}) {
      switch (awaited.target.load(std::memory_order_acquire)) {
        case Target::written:
          return Status::ready;
        case Target::missing:
          return Status::end;
        case Target::open:
          break;
      }
      if (again) break;
      if (std::unique_lock lock(mutex_, std::try_to_lock);
          lock && !rests() && waiting() <= horizon_) {
        // Leave the lock to stage 0 while there is a frame for it.
        const bool empty = waiting() == 0;
        if (look(empty ? patience : std::chrono::microseconds(0)) || empty) continue;
      }
      std::unique_lock told(told_mutex_);
      told_.wait_for(told, patience, [&] {
        return awaited.target.load(std::memory_order_acquire) != Target::open;
      });
    }
    return Status::wait;
  }
  Status targets_known(std::chrono::microseconds patience) override {
    const std::lock_guard lock(mutex_);
    if (any_open() && !rests() && waiting() <= horizon_) look(patience);
    return any_open() ? Status::wait : Status::ready;
  }
  std::int64_t pending() const override { return unfit() + waiting(); }
  std::int64_t unfit() const override { return unpaired_.load(std::memory_order_relaxed); }

 private:
  enum class Target : std::uint8_t { open, written, missing };
  struct Awaited {
    engine::Sample* sample = nullptr;
    std::int64_t frame = -1, segment = 0;
    std::atomic<Target> target{Target::missing};
  };

  // All below up to wake(): under the lock.
  std::int64_t waiting() const { return arrived_ - passed_; }  ///< frames in the window
  io::Frame& at(std::int64_t n) { return window_[std::size_t(n) % window_.size()]; }
  void write_context(engine::Sample& sample) {
    std::int64_t n = passed_;
    for (int place = context_ - 1; place >= 0; --place) {
      write_input(at(n), sample, place, context_);
      if (n > 0 && at(n - 1).segment == at(n).segment) --n;
    }
  }
  /// Moves one frame, if one arrives, into the window and writes it to the samples that await it.
  bool look(std::chrono::microseconds patience) {
    io::Frame* const frame = pop(patience, ended_);
    if (!frame) {
      for (Awaited& awaited : awaited_)
        if (ended_) miss(awaited);
      wake();
      return false;
    }
    if (queue_.drops() && arrived_ > 0 && frame->id > at(arrived_ - 1).id + 1)
      behind_until_ = arrived_ + std::int64_t(awaited_.size());
    io::Frame& kept = at(arrived_++);
    kept = resizer_.fit(*frame);
    kept.id = frame->id;
    kept.captured = frame->captured;
    kept.segment = frame->segment;
    queue_.release(frame);
    for (Awaited& awaited : awaited_) tell(awaited, kept);
    wake();
    return true;
  }
  /// Whether frames were dropped before the latest frames, as many as there are samples in flight.
  bool behind() const { return arrived_ <= behind_until_; }
  /// Skips to the newest frame whose target is there.
  void catch_up() {
    const auto skip = [&] {
      ++passed_;
      queue_.skip();
    };
    while (look(std::chrono::microseconds(0)))
      if (waiting() > horizon_ + 1) skip();
    for (bool never = false; waiting() > 1 && !pair(never) && never; never = false) skip();
  }
  void tell(Awaited& awaited, const io::Frame& frame) {
    if (awaited.target.load(std::memory_order_relaxed) != Target::open) return;
    const std::int64_t due = awaited.frame + horizon_;
    if (frame.segment != awaited.segment || frame.id > due) return miss(awaited);
    if (frame.id < due) return;
    write_target(frame, *awaited.sample);
    awaited.target.store(Target::written, std::memory_order_release);
  }
  void wake() {
    { const std::lock_guard told(told_mutex_); }  // no worker is between its check and its wait
    told_.notify_all();
  }
  void miss(Awaited& awaited) {
    if (awaited.target.load(std::memory_order_relaxed) != Target::open) return;
    awaited.target.store(Target::missing, std::memory_order_release);
  }
  bool any_open() const {
    return std::any_of(awaited_.begin(), awaited_.end(), [](const Awaited& awaited) {
      return awaited.target.load(std::memory_order_relaxed) == Target::open;
    });
  }
  /// The target of the window's first frame; null: not there yet, or `never` to arrive.
  const io::Frame* pair(bool& never) {
    const io::Frame& first = at(passed_);
    for (std::int64_t n = passed_ + 1; n < arrived_; ++n) {
      const io::Frame& frame = at(n);
      if (frame.segment == first.segment && frame.id == first.id + horizon_) return &frame;
      never = never || frame.segment != first.segment || frame.id > first.id + horizon_;
    }
    never = never || ended_;
    return nullptr;
  }

  const std::int64_t horizon_;
  const int context_;
  const bool late_;
  std::mutex mutex_;
  std::vector<io::Frame> window_;  ///< ring: frames of the latest samples and of those to come
  std::int64_t arrived_ = 0, passed_ = 0, behind_until_ = -1;
  bool ended_ = false;
  std::vector<Awaited> awaited_;           ///< [slot]
  std::mutex told_mutex_;                  ///< guards told_ only
  std::condition_variable told_;           ///< a sample's target may have arrived
  std::atomic<std::int64_t> unpaired_{0};  ///< frames left out, as they had no target
};

}  // namespace millrace::app
