#include "io/queue/reader.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "io/source/source.h"
#include "io/source/timeline.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds, std::chrono::nanoseconds;

// stop() takes effect within this.
constexpr milliseconds kPaceSlice(20);
// A larger step between a file's stamps, if also more than a few frames, is a jump.
constexpr nanoseconds kJump = std::chrono::seconds(10);
// A paced source this late continues from now instead of catching up in a burst.
constexpr milliseconds kStall(1000);

struct Left {};  // thrown in an abandoned thread

}  // namespace

/// The thread's state, which outlives the reader if the source hangs.
struct Reader::Work {
  Work(std::unique_ptr<Source> from, FrameQueue& to, ReaderOptions how)
      : source(std::move(from)),
        health(source->health()),
        queue(to),
        options(how),
        live(source->info().live),
        named(plausible_rate(source->info().fps)),
        timeline(frame_period(source->info().fps > 0.0 ? source->info().fps : how.fps), kJump) {}

  /// Calls `call` on the source. Throws Left if it returns too late.
  template <typename Call>
  auto ask(const Call& call) {
    const auto come_back = [&] {
      Place from = Place::in_source;
      if (!place.compare_exchange_strong(from, Place::here)) throw Left();
    };
    place = Place::in_source;
    try {
      const auto said = call(*source);
      come_back();
      return said;
    } catch (const std::exception&) {
      come_back();
      throw;
    }
  }

  void run() {
    try {
      read_all();
    } catch (const Left&) {
      return;
    } catch (const std::exception& broken) {
      error = broken.what();
    }
    queue.close();  // first: a source that hangs must not delay saving the weights
    finished = true;
    hung = destroy(std::move(source)).wait_for(options.teardown) != std::future_status::ready;
  }

  /// Abandons the thread if it is in the source. Any thread.
  bool leave() {
    Place from = Place::in_source;
    return place.compare_exchange_strong(from, Place::left);
  }

  void read_all() {
    for (;;) {
      const std::int64_t before = delivered;
      if (!read_pass() || !options.loop) return;
      // A source without any good frame would loop forever.
      if (delivered == before || !ask([](Source& from) { return from.rewind(); })) return;
      timeline.broke_off();
      ++breaks;
    }
  }

  // True at the source's end, false if no more frames are wanted.
  bool read_pass() {
    while (!stop.load() && !limit_reached()) {
      switch (ask([this](Source& from) { return from.read(frame, kPaceSlice); })) {
        case ReadStatus::frame:
          if (!deliver()) return false;
          break;
        case ReadStatus::corrupt:
          queue.reject();
          ++breaks;
          break;
        case ReadStatus::timeout:
          break;
        case ReadStatus::end:
          return true;
      }
    }
    return false;
  }

  bool deliver() {
    stamp();
    if (options.paced && !wait_until_due()) return false;
    frame.segment = breaks + health->reconnects.load();
    if (std::exchange(last_segment, frame.segment) != frame.segment) in_segment = 0;
    if (++in_segment > options.ahead) ++counted;
    ++delivered;
    if (options.seen) options.seen(frame);
    std::swap(frame, queue.writable());
    return queue.push();
  }

  void stamp() {
    frame.captured = Clock::now();
    const std::int64_t now = health->reconnects.load();
    if (std::exchange(reconnects, now) != now) {
      timeline.broke_off();  // an outage is no frame time
      named = plausible_rate(source->info().fps);
      timeline.set_period(frame_period(named));
    }
    // Elapsed time means nothing for a file.
    frame.pts = timeline.map(frame.pts, live ? frame.captured - last_captured : nanoseconds(0));
    last_captured = frame.captured;
    // A live source that waits for the queue loses frames, so its stamps don't show its rate.
    by_stamps = named <= 0 || (timeline.differs() && (!live || queue.drops()));
    fps.store(by_stamps ? timeline.rate() : named, std::memory_order_relaxed);
  }

  bool wait_until_due() {
    const Clock::time_point now = Clock::now();
    if (delivered == 0 || now > start + frame.pts + kStall) start = now - frame.pts;
    const Clock::time_point due = start + frame.pts;
    for (auto left = due - now; left > nanoseconds::zero(); left = due - Clock::now()) {
      if (stop.load()) return false;
      std::this_thread::sleep_for(std::min<nanoseconds>(left, kPaceSlice));
    }
    frame.captured = due;
    return true;
  }
  bool limit_reached() const { return options.limit > 0 && counted >= options.limit; }

  std::unique_ptr<Source> source;
  const std::shared_ptr<const StreamHealth> health;  // outlives the source
  FrameQueue& queue;                                 // not accessed once the thread is abandoned
  const ReaderOptions options;
  const bool live;    // frames arrive in real time
  double named;       // frames per second by the latest connection; 0: unknown
  Timeline timeline;  // over loops, missing stamps and jumps
  Frame frame;        // current; swapped into the queue
  Clock::time_point last_captured;
  Clock::time_point start;  // when pts 0 fell due
  std::int64_t delivered = 0;
  std::int64_t breaks = 0;      // before the current frame
  std::int64_t reconnects = 0;  // before the current frame
  std::int64_t in_segment = 0;  // delivered in the current segment
  std::int64_t counted = 0;     // towards the limit
  std::int64_t last_segment = -1;
  std::string error;
  bool hung = false;

  // Any thread.
  enum class Place { here, in_source, left };
  std::atomic<Place> place{Place::here};
  std::atomic<double> fps{0.0};
  std::atomic<bool> by_stamps{false};
  std::atomic<bool> stop{false};
  std::atomic<bool> finished{false};  // the queue is closed
  std::atomic<Clock::time_point> stopped{Clock::time_point::max()};
};

Reader::Reader(std::unique_ptr<Source> source, FrameQueue& queue, ReaderOptions options)
    : work_(std::make_shared<Work>(std::move(source), queue, options)) {
  std::promise<void> over;
  over_ = over.get_future();
  thread_ = std::thread([work = work_, over = std::move(over)]() mutable {
    work->run();
    over.set_value();
  });
}

Reader::~Reader() {
  stop();
  if (!work_->finished && work_->place != Work::Place::left) work_->queue.stop();
  join();
}

void Reader::stop() {
  if (!work_->stop.exchange(true)) work_->stopped = Clock::now();
}

void Reader::leave_hung() {
  const Clock::time_point stopped = work_->stopped;
  if (stopped == Clock::time_point::max() || Clock::now() - stopped < work_->options.teardown)
    return;
  if (work_->leave()) work_->queue.close();
}

void Reader::join() {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) return;
  while (over_.wait_for(kPaceSlice) != std::future_status::ready) {
    leave_hung();
    if (work_->place == Work::Place::left) return thread_.detach();
  }
  thread_.join();
}

const std::string& Reader::error() const {
  return work_->error;
}

bool Reader::hung() const {
  return work_->hung || work_->place == Work::Place::left;
}

double Reader::fps() const {
  return work_->fps.load(std::memory_order_relaxed);
}

bool Reader::fps_by_stamps() const {
  return work_->by_stamps;
}

}  // namespace millrace::io
