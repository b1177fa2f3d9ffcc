#include "io/queue/reader.h"
#include "io/source/stream_health.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "io/source/teardown.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// stop() takes effect within one of these.
constexpr milliseconds kPaceSlice(20);
// A larger step between a file's stamps, if it is also more than a few frames, is a jump.
constexpr nanoseconds kJump = std::chrono::seconds(10);
// A paced source that is this late goes on from now instead of bursting to catch up.
constexpr milliseconds kStall(1000);

// 0: unknown.
nanoseconds frame_period(double source_fps, double fps) {
  const double rate = source_fps > 0.0 ? source_fps : fps;
  return nanoseconds(rate > 0.0 ? std::int64_t(1e9 / rate) : 0);
}

}  // namespace

Reader::Reader(std::unique_ptr<Source> source, FrameQueue& queue, ReaderOptions options)
    : source_(std::move(source)),
      health_(source_->health()),
      queue_(queue),
      options_(options),
      live_(source_->info().live),
      timeline_(frame_period(source_->info().fps, options.fps), kJump),
      thread_([this] { run(); }) {}

Reader::~Reader() {
  stop();
  if (!finished_.load()) queue_.stop();
  join();
}

void Reader::stop() {
  stop_.store(true);
}

void Reader::join() {
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

const std::string& Reader::error() const {
  return error_;
}

void Reader::run() {
  try {
    read_all();
  } catch (const std::exception& broken) {
    error_ = broken.what();
  }
  queue_.close();  // first: a source that hangs must not delay saving what was learned
  finished_.store(true);
  hung_ = !Teardown().destroy(std::move(source_), options_.teardown);
}

void Reader::read_all() {
  for (;;) {
    const std::int64_t before = delivered_;
    if (!read_pass() || !options_.loop) return;
    // Without any good frame this would loop for ever.
    if (delivered_ == before || !source_->rewind()) return;
    timeline_.broke_off();
    ++breaks_;
  }
}

// True if the source's end was reached, false if no more frames are wanted.
bool Reader::read_pass() {
  while (!stop_.load() && !limit_reached()) {
    Frame& frame = queue_.writable();
    switch (source_->read(frame, kPaceSlice)) {
      case ReadStatus::frame:
        if (!deliver(frame)) return false;
        break;
      case ReadStatus::corrupt:
        queue_.reject();
        ++breaks_;
        break;
      case ReadStatus::timeout:
        break;
      case ReadStatus::end:
        return true;
    }
  }
  return false;
}

bool Reader::deliver(Frame& frame) {
  stamp(frame);
  if (options_.paced && !wait_until_due(frame)) return false;
  frame.segment = breaks_ + health_->reconnects.load();
  if (std::exchange(last_segment_, frame.segment) != frame.segment) in_segment_ = 0;
  if (++in_segment_ > options_.ahead) ++counted_;
  ++delivered_;
  return queue_.push();
}

void Reader::stamp(Frame& frame) {
  frame.captured = Clock::now();
  // Elapsed time means nothing for a file.
  frame.pts = timeline_.map(frame.pts, live_ ? frame.captured - last_captured_ : nanoseconds(0));
  last_captured_ = frame.captured;
  fps_.store(timeline_.rate(), std::memory_order_relaxed);
}

// False if stop() came first.
bool Reader::wait_until_due(Frame& frame) {
  const Clock::time_point now = Clock::now();
  if (delivered_ == 0 || now > start_ + frame.pts + kStall) start_ = now - frame.pts;
  const Clock::time_point due = start_ + frame.pts;
  for (auto left = due - now; left > nanoseconds::zero(); left = due - Clock::now()) {
    if (stop_.load()) return false;
    std::this_thread::sleep_for(std::min<nanoseconds>(left, kPaceSlice));
  }
  frame.captured = due;
  return true;
}

}  // namespace millrace::io
