#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "io/queue/frame_queue.h"
#include "io/source/source.h"
#include "io/source/timeline.h"

namespace millrace::io {

struct ReaderOptions {
  bool paced = false;  ///< sleep until a frame is due by its pts (files only)
  bool loop = false;
  std::int64_t limit = 0;  ///< stop after this many good frames; 0: no limit
  int ahead = 0;           ///< frames of each segment that don't count towards the limit
  double fps = 0.0;        ///< rate if neither pts nor the source gives one; 0: 25
  /// Gets each good frame before it is queued, on the reader's thread; may be empty.
  std::function<void(const Frame& frame)> seen = {};
  std::chrono::milliseconds teardown{5000};  ///< a source that takes longer to stop is abandoned
};

/// Reads until the source ends or breaks, the limit is reached or stop() is called. Then closes the
/// queue and destroys the source, waiting at most `teardown`. A hanging source is abandoned with
/// its thread, which then accesses nothing of the caller's. pts stay monotonic over loops.
/// Thread-safe.
class Reader {
 public:
  /// `queue` outlives this object.
  Reader(std::unique_ptr<Source> source, FrameQueue& queue, ReaderOptions options)
      : work_(std::make_shared<Work>(std::move(source), queue, options)) {
    std::promise<void> over;
    over_ = over.get_future();
    thread_ = std::thread([work = work_, over = std::move(over)]() mutable {
      work->run();
      over.set_value();
    });
  }
  /// Stops and joins. Stops the queue, too, if the thread may be waiting for room in it.
  ~Reader() {
    stop();
    if (!work_->finished && work_->place != Place::left) work_->queue.stop();
    join();
  }

  /// Reads no further frame; noticed within about 20 ms, or when a full queue has room again.
  void stop() {
    if (!work_->stop.exchange(true)) work_->stopped = Clock::now();
  }
  /// After stop(): closes the queue if the source hasn't returned for `teardown`.
  void leave_hung() {
    const Clock::time_point stopped = work_->stopped;
    const bool asked = stopped != Clock::time_point::max();
    if (asked && Clock::now() - stopped >= work_->options.teardown && work_->leave())
      work_->queue.close();
  }
  void join() {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) return;
    while (over_.wait_for(kPaceSlice) != std::future_status::ready) {
      leave_hung();
      if (work_->place == Place::left) return thread_.detach();
    }
    thread_.join();
  }
  /// Empty unless the stream broke; valid after join().
  const std::string& error() const { return work_->error; }
  /// Whether the source hung in a read or its destructor and was abandoned; valid after join().
  bool hung() const { return work_->hung || work_->place == Place::left; }
  /// Frames per second, from the source or from the stamps; 0 until about 9 frames have come.
  double fps() const { return work_->fps.load(std::memory_order_relaxed); }

 private:
  // stop() takes effect within this.
  static constexpr std::chrono::milliseconds kPaceSlice{20};
  // A larger step between a file's stamps, if also more than a few frames, is a jump.
  static constexpr std::chrono::nanoseconds kJump = std::chrono::seconds(10);
  // A paced source this late continues from now instead of catching up in a burst.
  static constexpr std::chrono::milliseconds kStall{1000};

  struct Left {};  ///< thrown in an abandoned thread
  enum class Place { here, in_source, left };

  /// The thread's state, which outlives the reader if the source hangs.
  struct Work {
    Work(std::unique_ptr<Source> from, FrameQueue& to, ReaderOptions how)
        : source(std::move(from)),
          health(source->health()),
          queue(to),
          options(how),
          live(source->info().live),
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
        const auto status = ask([this](Source& from) { return from.read(frame, kPaceSlice); });
        if (status == ReadStatus::end) return true;
        if (status == ReadStatus::frame && !deliver()) return false;
        if (status != ReadStatus::corrupt) continue;
        queue.reject();
        ++breaks;
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
      if (std::exchange(reconnects, now) != now)
        timeline.broke_off();  // an outage is no frame time
      // Elapsed time means nothing for a file.
      frame.pts = timeline.map(frame.pts,
                               live ? frame.captured - last_captured : std::chrono::nanoseconds(0));
      last_captured = frame.captured;
      fps.store(timeline.rate(), std::memory_order_relaxed);
    }

    bool wait_until_due() {
      const Clock::time_point now = Clock::now();
      if (delivered == 0 || now > start + frame.pts + kStall) start = now - frame.pts;
      const Clock::time_point due = start + frame.pts;
      for (auto left = due - now; left > std::chrono::nanoseconds::zero();
           left = due - Clock::now()) {
        if (stop.load()) return false;
        std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, kPaceSlice));
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
    std::atomic<Place> place{Place::here};
    std::atomic<double> fps{0.0};
    std::atomic<bool> stop{false};
    std::atomic<bool> finished{false};  // the queue is closed
    std::atomic<Clock::time_point> stopped{Clock::time_point::max()};
  };

  const std::shared_ptr<Work> work_;  // shared with the thread
  std::mutex mutex_;                  // guards the members below
  std::future<void> over_;
  std::thread thread_;
};

}  // namespace millrace::io
