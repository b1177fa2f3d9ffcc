#include "tools/app/feeds/next_frame_feed.h"

#include <algorithm>
#include <thread>

namespace millrace::app {

using Status = engine::Feed::Status;
using namespace std::chrono_literals;

NextFrameFeed::NextFrameFeed(io::FrameQueue& queue, io::Resizer& resizer, Ahead ahead, bool late,
                             int slots)
    : FrameFeed(queue, resizer, TargetFrom::later_frame),
      horizon_(ahead.horizon),
      context_(ahead.context),
      late_(late),
      window_(std::size_t(ahead.horizon) + std::size_t(ahead.context)),
      awaited_(std::size_t(slots)) {}

Status NextFrameFeed::poll(std::chrono::microseconds patience) {
  if (rests()) {
    std::this_thread::sleep_for(patience);
    return Status::wait;
  }
  const std::lock_guard lock(mutex_);
  if (late_) {
    if (waiting() > 0 || look(patience)) return Status::ready;
    return ended_ ? Status::end : Status::wait;
  }
  bool never = false;
  if (waiting() > 0 && pair(never)) return Status::ready;
  if (never) {
    ++unpaired_;
    ++passed_;
  } else if (!look(patience) && ended_ && waiting() == 0) {
    return Status::end;
  }
  return Status::wait;
}

void NextFrameFeed::take(engine::Sample& sample) {
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

void NextFrameFeed::write_context(engine::Sample& sample) {
  std::int64_t n = passed_;
  for (int place = context_ - 1; place >= 0; --place) {
    write_input(at(n), sample, place, context_);
    if (n > 0 && at(n - 1).segment == at(n).segment) --n;
  }
}

Status NextFrameFeed::target(engine::Sample& sample, std::chrono::microseconds patience) {
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
      // Don't keep the lock from stage 0 while there is a frame for it.
      const bool empty = waiting() == 0;
      if (look(empty ? patience : 0us) || empty) continue;
    }
    std::unique_lock told(told_mutex_);
    told_.wait_for(told, patience,
                   [&] { return awaited.target.load(std::memory_order_acquire) != Target::open; });
  }
  return Status::wait;
}

Status NextFrameFeed::targets_known(std::chrono::microseconds patience) {
  const std::lock_guard lock(mutex_);
  if (any_open() && !rests() && waiting() <= horizon_) look(patience);
  return any_open() ? Status::wait : Status::ready;
}

bool NextFrameFeed::look(std::chrono::microseconds patience) {
  io::Frame* const frame = pop(patience, ended_);
  if (!frame) {
    for (Awaited& awaited : awaited_) {
      if (ended_) miss(awaited);
    }
    wake();
    return false;
  }
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

void NextFrameFeed::wake() {
  { const std::lock_guard told(told_mutex_); }  // no worker is between its check and its wait
  told_.notify_all();
}

void NextFrameFeed::tell(Awaited& awaited, const io::Frame& frame) {
  if (awaited.target.load(std::memory_order_relaxed) != Target::open) return;
  const std::int64_t due = awaited.frame + horizon_;
  if (frame.segment != awaited.segment || frame.id > due) return miss(awaited);
  if (frame.id < due) return;
  write_target(frame, *awaited.sample);
  awaited.target.store(Target::written, std::memory_order_release);
}

void NextFrameFeed::miss(Awaited& awaited) {
  if (awaited.target.load(std::memory_order_relaxed) != Target::open) return;
  missed_.fetch_add(1, std::memory_order_relaxed);
  awaited.target.store(Target::missing, std::memory_order_release);
}

bool NextFrameFeed::any_open() const {
  return std::any_of(awaited_.begin(), awaited_.end(), [](const Awaited& awaited) {
    return awaited.target.load(std::memory_order_relaxed) == Target::open;
  });
}

const io::Frame* NextFrameFeed::pair(bool& never) {
  const io::Frame& first = at(passed_);
  for (std::int64_t n = passed_ + 1; n < arrived_; ++n) {
    const io::Frame& frame = at(n);
    if (frame.segment == first.segment && frame.id == first.id + horizon_) return &frame;
    never = never || frame.segment != first.segment || frame.id > first.id + horizon_;
  }
  never = never || ended_;
  return nullptr;
}

}  // namespace millrace::app
